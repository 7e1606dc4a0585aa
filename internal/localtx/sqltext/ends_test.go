package sqltext

import "testing"

func TestEndsTransaction(t *testing.T) {
	for sql, want := range map[string]bool{
		"COMMIT": true, " commit ;": true, "/* x */ END": true, "abort": true, "ROLLBACK": true, "rollback work": true, "rollback prepared 'x'": true,
		"PREPARE TRANSACTION 'x'": true, "select 1; commit": true, "select ';' ; -- \n rollback": true, "COMMIT AND CHAIN": true,
		"SELECT 1": false, "ROLLBACK TO a": false, "rollback to savepoint a": false, "ROLLBACK WORK TO a": false, "rollback transaction to savepoint a": false,
		"SAVEPOINT commit": false, "select 'commit; rollback'": false, "SELECT 1 AS end": false, "prepare x as select 1": false, "DO $$ BEGIN COMMIT; END $$": false,
		"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END": false,
		"": false, "'": false, "INSERT INTO t VALUES ($1, $2)": false,
	} {
		if got := EndsTransaction(sql); got != want {
			t.Errorf("%s: got %t, want %t", sql, got, want)
		}
	}
}
