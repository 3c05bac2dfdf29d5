"""Sessions: what a user of PySpark calls: sessions, snapshots, transactions, the data source."""
