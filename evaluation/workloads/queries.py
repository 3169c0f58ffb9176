#!/usr/bin/env python3
"""TPC-H's queries as SQL for PostgreSQL, a line each, with parameters drawn by section 2.4 of the
specification.

    queries.py power SCALE              one line each in the order of the power test, refreshes included
    queries.py stream N SCALE           stream N of the throughput test (0 to 3)
    queries.py refresh PAIRS SCALE      pairs of refresh functions
    queries.py single                   the queries in order, with the validation parameters
    queries.py ods COUNT SCALE          queries 2, 5, 9, 11, 17 of ranges at random places (TAC 4.2)
    queries.py zipf COUNT               queries 1, 6, 14, 15 of Zipf-distributed ship dates (TAC 4.2)

Every line begins with the query's name and a tab.
"""

import datetime
import random
import sys

ORDER = [  # appendix A of the specification
    [14, 2, 9, 20, 6, 17, 18, 8, 21, 13, 3, 22, 16, 4, 11, 15, 1, 10, 19, 5, 7, 12],
    [21, 3, 18, 5, 11, 7, 6, 20, 17, 12, 16, 15, 13, 10, 2, 8, 14, 19, 9, 22, 1, 4],
    [6, 17, 14, 16, 19, 10, 9, 2, 15, 8, 5, 22, 12, 7, 13, 18, 1, 4, 20, 3, 11, 21],
    [8, 5, 4, 6, 17, 7, 1, 18, 22, 14, 9, 10, 15, 11, 20, 2, 21, 19, 13, 16, 12, 3],
]
TYPES = (
    ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
)
REGIONS = {
    "AFRICA": ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"],
    "AMERICA": ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"],
    "ASIA": ["INDIA", "INDONESIA", "JAPAN", "CHINA", "VIETNAM"],
    "EUROPE": ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"],
    "MIDDLE EAST": ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
}
COLOURS = "almond antique aquamarine azure beige bisque black blanched blue blush brown chiffon".split()
CONTAINERS = (["SM", "LG", "MED", "JUMBO", "WRAP"], ["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"])
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]

SQL = {
    1: """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
        sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
        avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) from lineitem
        where l_shipdate <= date '1998-12-01' - interval '{delta} day'
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    2: """select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        from part, supplier, partsupp, nation, region where p_partkey = ps_partkey
        and s_suppkey = ps_suppkey and p_size = {size} and p_type like '%{type3}'
        and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = '{region}'
        and ps_supplycost = (select min(ps_supplycost) from partsupp, supplier, nation, region
            where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
            and n_regionkey = r_regionkey and r_name = '{region}') {more}
        order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    3: """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem where c_mktsegment = '{segment}' and c_custkey = o_custkey
        and l_orderkey = o_orderkey and o_orderdate < date '1995-03-{day:02}'
        and l_shipdate > date '1995-03-{day:02}' group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate limit 10""",
    4: """select o_orderpriority, count(*) from orders where o_orderdate >= date '{month}'
        and o_orderdate < date '{month}' + interval '3 month' and exists (select * from lineitem
        where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority""",
    5: """select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region where c_custkey = o_custkey
        and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
        and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = '{region}'
        and {dates} {more} group by n_name order by revenue desc""",
    6: """select sum(l_extendedprice * l_discount) from lineitem where {ship}
        and l_discount between {discount} - 0.01 and {discount} + 0.01 and l_quantity < {quantity}""",
    7: """select supp_nation, cust_nation, l_year, sum(volume) from (select n1.n_name as supp_nation,
        n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
        l_extendedprice * (1 - l_discount) as volume
        from supplier, lineitem, orders, customer, nation n1, nation n2 where s_suppkey = l_suppkey
        and o_orderkey = l_orderkey and c_custkey = o_custkey and s_nationkey = n1.n_nationkey
        and c_nationkey = n2.n_nationkey and ((n1.n_name = '{nation}' and n2.n_name = '{other}')
        or (n1.n_name = '{other}' and n2.n_name = '{nation}'))
        and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
        group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year""",
    8: """select o_year, sum(case when nation = '{nation}' then volume else 0 end) / sum(volume)
        from (select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume,
        n2.n_name as nation from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
        where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
        and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
        and r_name = '{region}' and s_nationkey = n2.n_nationkey
        and o_orderdate between date '1995-01-01' and date '1996-12-31' and p_type = '{type}') as all_nations
        group by o_year order by o_year""",
    9: """select nation, o_year, sum(amount) from (select n_name as nation,
        extract(year from o_orderdate) as o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
        from part, supplier, lineitem, partsupp, orders, nation where s_suppkey = l_suppkey
        and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
        and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%{colour}%' {more}) as profit
        group by nation, o_year order by nation, o_year desc""",
    10: """select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name,
        c_address, c_phone, c_comment from customer, orders, lineitem, nation where c_custkey = o_custkey
        and l_orderkey = o_orderkey and o_orderdate >= date '{month}'
        and o_orderdate < date '{month}' + interval '3 month' and l_returnflag = 'R'
        and c_nationkey = n_nationkey group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address,
        c_comment order by revenue desc limit 20""",
    11: """select ps_partkey, sum(ps_supplycost * ps_availqty) as value from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = '{nation}' {more}
        group by ps_partkey having sum(ps_supplycost * ps_availqty) > (select
        sum(ps_supplycost * ps_availqty) * {fraction} from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = '{nation}' {more})
        order by value desc""",
    12: """select l_shipmode, sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end),
        sum(case when o_orderpriority not in ('1-URGENT', '2-HIGH') then 1 else 0 end)
        from orders, lineitem where o_orderkey = l_orderkey and l_shipmode in ('{mode}', '{mode2}')
        and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
        and l_receiptdate >= date '{year}-01-01' and l_receiptdate < date '{year}-01-01' + interval '1 year'
        group by l_shipmode order by l_shipmode""",
    13: """select c_count, count(*) as custdist from (select c_custkey, count(o_orderkey) as c_count
        from customer left outer join orders on c_custkey = o_custkey
        and o_comment not like '%special%requests%' group by c_custkey) as c_orders
        group by c_count order by custdist desc, c_count desc""",
    14: """select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
        / sum(l_extendedprice * (1 - l_discount)) from lineitem, part where l_partkey = p_partkey and {ship}""",
    15: """with revenue as (select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as
        total_revenue from lineitem where {ship} group by l_suppkey)
        select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
        where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
        order by s_suppkey""",
    16: """select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt from partsupp, part
        where p_partkey = ps_partkey and p_brand <> '{brand}' and p_type not like '{type2}%'
        and p_size in ({sizes}) and ps_suppkey not in (select s_suppkey from supplier
        where s_comment like '%Customer%Complaints%') group by p_brand, p_type, p_size
        order by supplier_cnt desc, p_brand, p_type, p_size""",
    17: """select sum(l_extendedprice) / 7.0 from lineitem, part where p_partkey = l_partkey
        and {parts} and l_quantity < (select 0.2 * avg(l_quantity)
        from lineitem where l_partkey = p_partkey)""",
    18: """select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        from customer, orders, lineitem where o_orderkey in (select l_orderkey from lineitem
        group by l_orderkey having sum(l_quantity) > {quantity18}) and c_custkey = o_custkey
        and o_orderkey = l_orderkey group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate limit 100""",
    19: """select sum(l_extendedprice * (1 - l_discount)) from lineitem, part where p_partkey = l_partkey
        and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON' and ((p_brand = '{brand}'
        and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') and l_quantity between {q1} and {q1} + 10
        and p_size between 1 and 5) or (p_brand = '{brand2}'
        and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') and l_quantity between {q2} and {q2} + 10
        and p_size between 1 and 10) or (p_brand = '{brand3}'
        and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') and l_quantity between {q3} and {q3} + 10
        and p_size between 1 and 15))""",
    20: """select s_name, s_address from supplier, nation where s_suppkey in (select ps_suppkey from partsupp
        where ps_partkey in (select p_partkey from part where p_name like '{colour}%')
        and ps_availqty > (select 0.5 * sum(l_quantity) from lineitem where l_partkey = ps_partkey
        and l_suppkey = ps_suppkey and l_shipdate >= date '{year}-01-01'
        and l_shipdate < date '{year}-01-01' + interval '1 year')) and s_nationkey = n_nationkey
        and n_name = '{nation}' order by s_name""",
    21: """select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation
        where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
        and l1.l_receiptdate > l1.l_commitdate and exists (select * from lineitem l2
        where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey) and not exists (select *
        from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
        and l3.l_receiptdate > l3.l_commitdate) and s_nationkey = n_nationkey and n_name = '{nation}'
        group by s_name order by numwait desc, s_name limit 100""",
    22: """select cntrycode, count(*), sum(c_acctbal) from (select substring(c_phone from 1 for 2) as cntrycode,
        c_acctbal from customer where substring(c_phone from 1 for 2) in ({codes})
        and c_acctbal > (select avg(c_acctbal) from customer where c_acctbal > 0.00
        and substring(c_phone from 1 for 2) in ({codes})) and not exists (select * from orders
        where o_custkey = c_custkey)) as custsale group by cntrycode order by cntrycode""",
}


def parameters(draw: random.Random, scale: float) -> dict[str, object]:
    region = draw.choice(list(REGIONS))
    nation = draw.choice(REGIONS[region])
    other = draw.choice([n for names in REGIONS.values() for n in names if n != nation])
    mode, mode2 = draw.sample(MODES, 2)
    brands = [f"Brand#{draw.randint(1, 5)}{draw.randint(1, 5)}" for _ in range(3)]
    types = [draw.choice(words) for words in TYPES]
    year = draw.randint(1993, 1997)
    month = datetime.date(draw.randint(1993, 1997), draw.randint(1, 10), 1)
    container = " ".join(draw.choice(words) for words in CONTAINERS)
    return {
        "delta": draw.randint(60, 120), "size": draw.randint(1, 50), "region": region,
        "nation": nation, "other": other, "type": " ".join(types), "type2": " ".join(types[:2]),
        "type3": types[2], "segment": draw.choice(SEGMENTS), "day": draw.randint(1, 31),
        "month": month, "year": year, "discount": draw.randint(2, 9) / 100,
        "quantity": draw.randint(24, 25), "colour": draw.choice(COLOURS),
        "fraction": 0.0001 / scale, "mode": mode, "mode2": mode2, "brand": brands[0],
        "brand2": brands[1], "brand3": brands[2], "quantity18": draw.randint(312, 315),
        "sizes": ", ".join(map(str, draw.sample(range(1, 51), 8))),
        "q1": draw.randint(1, 10), "q2": draw.randint(10, 20), "q3": draw.randint(20, 30),
        "codes": ", ".join(f"'{code}'" for code in draw.sample(range(10, 35), 7)), "more": "",
        "dates": f"o_orderdate >= date '{year}-01-01' and o_orderdate < date '{year + 1}-01-01'",
        "ship": f"l_shipdate >= date '{month}' and l_shipdate < date '{month}' + interval '1 month'",
        "parts": f"p_brand = '{brands[0]}' and p_container = '{container}'",
    }


VALIDATION = {
    "delta": 90, "size": 15, "region": "EUROPE", "nation": "GERMANY", "other": "FRANCE",
    "type": "ECONOMY ANODIZED STEEL", "type2": "MEDIUM POLISHED", "type3": "BRASS",
    "segment": "BUILDING", "day": 15, "month": "1993-07-01", "year": 1994, "discount": 0.06,
    "quantity": 24, "colour": "green", "fraction": 0.0001, "mode": "MAIL", "mode2": "SHIP",
    "brand": "Brand#12", "brand2": "Brand#23", "brand3": "Brand#34", "quantity18": 300,
    "sizes": "49, 14, 23, 45, 19, 3, 36, 9", "q1": 1, "q2": 10, "q3": 20, "more": "",
    "codes": "'13', '31', '23', '29', '30', '18', '17'",
    "dates": "o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'",
    "ship": "l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'",
    "parts": "p_brand = 'Brand#23' and p_container = 'MED BOX'",
}
# Where queries name one place of the validation parameters differently.
VALIDATED = {
    2: {}, 5: {"region": "ASIA"}, 7: {"nation": "FRANCE", "other": "GERMANY"},
    8: {"nation": "BRAZIL", "region": "AMERICA"}, 10: {"month": "1993-10-01"},
    14: {"ship": "l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'"},
    15: {"ship": "l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01'"},
    16: {"brand": "Brand#45"}, 20: {"colour": "forest", "nation": "CANADA"},
    21: {"nation": "SAUDI ARABIA"},
}


def line(name: str, text: str) -> None:
    print(f"{name}\t{' '.join(text.split())};")


def refresh(pair: int, scale: float) -> tuple[str, str]:
    """RF1 and RF2: a thousandth of the orders come and others go, with their line items. The
    generated keys leave 24 of each 32 free, which is where new orders go."""
    first = pair * max(1, int(1500 * scale)) * 4
    last = first + max(1, int(1500 * scale)) * 4  # keys of the generated orders are 4 apart in the mean
    inside = f"o_orderkey >= {first} and o_orderkey < {last}"
    lines = f"l_orderkey >= {first} and l_orderkey < {last}"
    rest = ", ".join("l_" + column for column in (
        "partkey suppkey linenumber quantity extendedprice discount tax returnflag linestatus shipdate "
        "commitdate receiptdate shipinstruct shipmode comment").split())
    come = f"""begin; insert into orders select o_orderkey + 8, o_custkey, o_orderstatus, o_totalprice,
        o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment from orders where {inside};
        insert into lineitem select l_orderkey + 8, {rest} from lineitem where {lines}; commit"""
    go = f"begin; delete from lineitem where {lines}; delete from orders where {inside}; commit"
    return come, go


def ods(count: int, scale: float) -> None:
    """Predicates that keep a range at a random place of each query's largest table (TAC 4.2: between
    0 and the largest value, uniform). Ranges are a share of the key's domain; the paper's one example
    is 10,000 of 60,000,000 order keys, and it says that some queries have large ranges."""
    draw = random.Random(5)
    orders, parts = int(6_000_000 * scale), int(200_000 * scale)
    for _ in range(count):
        query = draw.choice([2, 5, 9, 11, 17])
        values = parameters(draw, scale)
        share = draw.choice([1 / 6000, 1 / 2000, 1 / 600])
        def between(column: str, domain: int) -> str:
            start = draw.randrange(domain)
            return f"{column} between {start} and {start + max(1, int(domain * share))}"
        more = {2: ("p_partkey", parts), 5: ("o_orderkey", orders), 9: ("o_orderkey", orders),
                11: ("ps_partkey", parts), 17: ("p_partkey", parts)}[query]
        place = between(*more)
        values["more"] = "and " + place
        values["dates"] = "o_orderdate >= date '1993-01-01' and o_orderdate <= date '2000-01-01'"
        values["parts"] = place
        text = SQL[17].replace("(select 0.2 * avg(l_quantity)\n        from lineitem where l_partkey = p_partkey)",
                               "(select least from means where k = p_partkey)")
        # As DB2 does and PostgreSQL does not: the mean of each part once, not for each of its lines.
        means = "with means as materialized (select l_partkey as k, 0.2 * avg(l_quantity) as least " \
            "from lineitem where {lines} group by l_partkey) "
        values["lines"] = place.replace("p_partkey", "l_partkey")
        line(f"Q{query}", (means + text if query == 17 else SQL[query]).format(**values))


def zipf(count: int) -> None:
    """Ship dates by Zipf's law with exponent 1, the newest month first of 83."""
    draw = random.Random(6)
    months = [datetime.date(1992 + m // 12, m % 12 + 1, 1) for m in range(1, 84)][::-1]
    weights = [1 / (rank + 1) for rank in range(len(months))]
    for _ in range(count):
        query = draw.choice([1, 6, 14, 15])
        values = parameters(draw, 1)
        month = draw.choices(months, weights)[0]
        length = {1: 3, 6: 12, 14: 1, 15: 3}[query]
        values["ship"] = f"l_shipdate >= date '{month}' and l_shipdate < date '{month}' + interval '{length} month'"
        text = SQL[query].replace("l_shipdate <= date '1998-12-01' - interval '{delta} day'", "{ship}")
        line(f"Q{query}", text.format(**values))


def main() -> None:
    kind, rest = sys.argv[1], sys.argv[2:]
    if kind == "single":
        for query, text in SQL.items():
            line(f"Q{query}", text.format(**(VALIDATION | VALIDATED.get(query, {}))))
    elif kind in ("power", "stream"):
        stream = int(rest[0]) if kind == "stream" else 0
        scale = float(rest[-1])
        draw = random.Random(100 + stream)
        refreshes = refresh(1, scale)
        if kind == "power":
            line("RF1", refreshes[0])
        for query in ORDER[stream]:
            line(f"Q{query}", SQL[query].format(**parameters(draw, scale)))
        if kind == "power":
            line("RF2", refreshes[1])
    elif kind == "refresh":
        for pair in range(2, 2 + int(rest[0])):
            for name, text in zip(("RF1", "RF2"), refresh(pair, float(rest[1]))):
                line(name, text)
    elif kind == "ods":
        ods(int(rest[0]), float(rest[1]))
    elif kind == "zipf":
        zipf(int(rest[0]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
