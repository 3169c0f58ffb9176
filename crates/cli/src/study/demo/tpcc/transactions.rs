//! The five transactions (specification clauses 2.4–2.8), one client.

use super::draw::Draw;
use super::{DISTRICTS, Scale, key};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, params};

/// Names and shares of the transactions, percent (clause 5.2.3).
pub(crate) const MIX: [(&str, u64); 5] = [
    ("New-Order", 45),
    ("Payment", 43),
    ("Order-Status", 4),
    ("Delivery", 4),
    ("Stock-Level", 4),
];

/// One client: a connection and its random numbers.
pub(crate) struct Client<'db> {
    db: &'db Connection,
    scale: Scale,
    draw: Draw,
    done: [u64; MIX.len()],
    /// Stands in for the date: one tick a transaction.
    clock: i64,
    /// Sums of the warehouses' shares of the orders, in order of number.
    shares: Vec<f64>,
}

impl<'db> Client<'db> {
    /// A client of the database `db` that was loaded with `scale`.
    pub(crate) fn new(db: &'db Connection, scale: Scale, seed: u64) -> Result<Self> {
        db.set_prepared_statement_cache_capacity(64);
        let mut draw = Draw::new(seed);
        let shares = shares(&scale, &mut draw);
        Ok(Self {
            db,
            scale,
            draw,
            done: [0; MIX.len()],
            clock: 1,
            shares,
        })
    }

    /// Transactions done, in [`MIX`]'s order. A New-Order that its user aborts counts.
    pub(crate) fn done(&self) -> &[u64; MIX.len()] {
        &self.done
    }

    /// Draws and runs one transaction.
    pub(crate) fn transact(&mut self) -> Result<()> {
        self.clock += 1;
        let mut drawn = self.draw.below(100);
        let kind = MIX
            .iter()
            .position(|&(_, share)| match drawn.checked_sub(share) {
                Some(left) => {
                    drawn = left;
                    false
                }
                None => true,
            });
        let kind = kind.unwrap_or(0);
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let commit = match kind {
            0 => self.new_order()?,
            1 => self.payment()?,
            2 => self.order_status()?,
            3 => self.delivery()?,
            _ => self.stock_level()?,
        };
        self.db
            .execute_batch(if commit { "COMMIT" } else { "ROLLBACK" })?;
        self.done[kind] += 1;
        Ok(())
    }

    fn sql(&self, sql: &str) -> Result<CachedStatement<'db>> {
        self.db.prepare_cached(sql)
    }

    /// A warehouse, the busy ones more often.
    fn warehouse(&mut self) -> u64 {
        let at = self.draw.fraction() * self.shares.last().copied().unwrap_or(1.0);
        let before = self.shares.partition_point(|&sum| sum <= at) as u64;
        1 + before.min(self.scale.warehouses - 1)
    }

    fn district(&mut self) -> u64 {
        self.draw.between(1, DISTRICTS)
    }

    /// The home warehouse, or `percent` times of a hundred another one.
    fn maybe_remote(&mut self, home: u64, percent: u64) -> u64 {
        let others = self.scale.warehouses - 1;
        if others == 0 || !self.draw.chance(percent) {
            return home;
        }
        let other = self.draw.between(1, others);
        if other < home { other } else { other + 1 }
    }

    /// A customer of a district, 60 % by last name (the middle one of that name).
    fn customer(&mut self, district: u64) -> Result<i64> {
        if self.draw.chance(60) {
            let name = self.draw.last_name(self.scale.customers);
            let sql = "SELECT c_id FROM customer WHERE c_district = ? AND c_last = ? \
                       ORDER BY c_first";
            let mut statement = self.sql(sql)?;
            let rows = statement.query_map(params![district as i64, name], |row| row.get(0))?;
            let ids: Vec<i64> = rows.collect::<Result<_>>()?;
            if !ids.is_empty() {
                return Ok(ids[ids.len() / 2]);
            }
        }
        let number = self.draw.customer(self.scale.customers);
        Ok(key::in_district(district, number) as i64)
    }

    fn new_order(&mut self) -> Result<bool> {
        let home = self.warehouse();
        let district = key::district(home, self.district());
        let customer = key::in_district(district, self.draw.customer(self.scale.customers)) as i64;
        let count = self.draw.between(5, 15);
        let aborts = self.draw.chance(1);
        self.sql("SELECT w_tax FROM warehouse WHERE w_id = ?")?
            .query_row([home as i64], |row| row.get::<_, f64>(0))?;
        self.sql("SELECT c_discount, c_last, c_credit FROM customer WHERE c_id = ?")?
            .query_row([customer], |row| row.get::<_, f64>(0))?;
        let number: i64 = self
            .sql(
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = ? \
                  RETURNING d_next_o_id - 1",
            )?
            .query_row([district as i64], |row| row.get(0))?;
        let order = key::in_district(district, number as u64);
        self.sql("INSERT INTO orders VALUES (?, ?, ?, ?, ?, NULL, ?)")?
            .execute(params![
                order as i64,
                district as i64,
                number,
                customer,
                self.clock,
                count as i64
            ])?;
        self.sql("INSERT INTO new_order VALUES (?)")?
            .execute([order as i64])?;
        for line in 1..=count {
            if aborts && line == count {
                return Ok(false);
            }
            self.order_item(home, order, line)?;
        }
        Ok(true)
    }

    fn order_item(&mut self, home: u64, order: u64, line: u64) -> Result<()> {
        let item = self.draw.item(self.scale.items);
        let supply = self.maybe_remote(home, 1);
        let quantity = self.draw.between(1, 10) as i64;
        let price: f64 = self
            .sql("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?")?
            .query_row([item as i64], |row| row.get(0))?;
        let sql = "UPDATE stock SET s_quantity = s_quantity - ?2 + \
                   CASE WHEN s_quantity >= ?2 + 10 THEN 0 ELSE 91 END, s_ytd = s_ytd + ?2, \
                   s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?3 \
                   WHERE s_id = ?1 RETURNING substr(s_dist, 1, 24)";
        let remote = i64::from(supply != home);
        let info: String = self.sql(sql)?.query_row(
            params![key::stock(supply, item) as i64, quantity, remote],
            |row| row.get(0),
        )?;
        let amount = quantity as f64 * price;
        let row = params![
            key::line(order, line) as i64,
            item as i64,
            supply as i64,
            quantity,
            amount,
            info
        ];
        self.sql("INSERT INTO order_line VALUES (?, ?, ?, NULL, ?, ?, ?)")?
            .execute(row)?;
        Ok(())
    }

    fn payment(&mut self) -> Result<bool> {
        let home = self.warehouse();
        let district = key::district(home, self.district());
        let away = self.maybe_remote(home, 15);
        let theirs = if away == home {
            district
        } else {
            key::district(away, self.district())
        };
        let customer = self.customer(theirs)?;
        let amount = self.draw.between(100, 500_000) as f64 / 100.0;
        self.sql("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?")?
            .execute(params![amount, home as i64])?;
        self.sql("UPDATE district SET d_ytd = d_ytd + ? WHERE d_id = ?")?
            .execute(params![amount, district as i64])?;
        let sql = "UPDATE customer SET c_balance = c_balance - ?2, \
                   c_ytd_payment = c_ytd_payment + ?2, c_payment_cnt = c_payment_cnt + 1, \
                   c_data = CASE c_credit WHEN 'BC' \
                   THEN substr(printf('%d %.2f ', c_id, ?2) || c_data, 1, 500) ELSE c_data END \
                   WHERE c_id = ?1";
        self.sql(sql)?.execute(params![customer, amount])?;
        let data = self.draw.letters(12, 24).to_owned();
        self.sql("INSERT INTO history VALUES (NULL, ?, ?, ?, ?, ?)")?
            .execute(params![customer, district as i64, self.clock, amount, data])?;
        Ok(true)
    }

    fn order_status(&mut self) -> Result<bool> {
        let home = self.warehouse();
        let district = key::district(home, self.district());
        let customer = self.customer(district)?;
        self.sql("SELECT c_balance, c_first, c_last FROM customer WHERE c_id = ?")?
            .query_row([customer], |row| row.get::<_, f64>(0))?;
        let sql = "SELECT o_id FROM orders WHERE o_c_id = ? ORDER BY o_id DESC LIMIT 1";
        let last: Option<i64> = self
            .sql(sql)?
            .query_row([customer], |row| row.get(0))
            .optional()?;
        if let Some(order) = last {
            self.sql("SELECT o_entry_d, o_carrier_id FROM orders WHERE o_id = ?")?
                .query_row([order], |row| row.get::<_, i64>(0))?;
            self.amount_of(order)?;
        }
        Ok(true)
    }

    fn amount_of(&mut self, order: i64) -> Result<f64> {
        let sql = "SELECT total(ol_amount) FROM order_line WHERE ol_id BETWEEN ? AND ?";
        let (first, last) = lines_of(order);
        self.sql(sql)?.query_row([first, last], |row| row.get(0))
    }

    fn delivery(&mut self) -> Result<bool> {
        let home = self.warehouse();
        let carrier = self.draw.between(1, 10) as i64;
        for d in 1..=DISTRICTS {
            self.deliver(key::district(home, d), carrier)?;
        }
        Ok(true)
    }

    /// Delivers a district's oldest open order, if there is one.
    fn deliver(&mut self, district: u64, carrier: i64) -> Result<()> {
        let range = [
            key::in_district(district, 0) as i64,
            key::in_district(district + 1, 0) as i64,
        ];
        let sql = "SELECT no_id FROM new_order WHERE no_id >= ? AND no_id < ? \
                   ORDER BY no_id LIMIT 1";
        let oldest: Option<i64> = self
            .sql(sql)?
            .query_row(range, |row| row.get(0))
            .optional()?;
        let Some(order) = oldest else { return Ok(()) };
        self.sql("DELETE FROM new_order WHERE no_id = ?")?
            .execute([order])?;
        let customer: i64 = self
            .sql("UPDATE orders SET o_carrier_id = ? WHERE o_id = ? RETURNING o_c_id")?
            .query_row([carrier, order], |row| row.get(0))?;
        let amount = self.amount_of(order)?;
        let (first, last) = lines_of(order);
        self.sql("UPDATE order_line SET ol_delivery_d = ? WHERE ol_id BETWEEN ? AND ?")?
            .execute([self.clock, first, last])?;
        let sql = "UPDATE customer SET c_balance = c_balance + ?, \
                   c_delivery_cnt = c_delivery_cnt + 1 WHERE c_id = ?";
        self.sql(sql)?.execute(params![amount, customer])?;
        Ok(())
    }

    fn stock_level(&mut self) -> Result<bool> {
        let home = self.warehouse();
        let district = key::district(home, self.district());
        let threshold = self.draw.between(10, 20) as i64;
        let next: i64 = self
            .sql("SELECT d_next_o_id FROM district WHERE d_id = ?")?
            .query_row([district as i64], |row| row.get(0))?;
        let order = |number: u64| key::line(key::in_district(district, number), 0) as i64;
        let first = order((next as u64).saturating_sub(20));
        let sql = "SELECT count(DISTINCT s_id) FROM order_line CROSS JOIN stock \
                   ON s_id = ? + ol_i_id WHERE ol_id BETWEEN ? AND ? AND s_quantity < ?";
        let row = params![
            key::stock(home, 0) as i64,
            first,
            order(next as u64),
            threshold
        ];
        self.sql(sql)?.query_row(row, |row| row.get::<_, i64>(0))?;
        Ok(true)
    }
}

/// Sums of the warehouses' weights; which of them is the busiest is drawn.
fn shares(scale: &Scale, draw: &mut Draw) -> Vec<f64> {
    let mut sum = 0.0;
    let ranks = draw.permutation(scale.warehouses);
    let weights = ranks.iter().map(|&rank| (rank as f64).powf(-scale.skew));
    weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

/// The first and the last key an order's lines can have.
fn lines_of(order: i64) -> (i64, i64) {
    let order = order as u64;
    (key::line(order, 0) as i64, key::line(order, 15) as i64)
}
