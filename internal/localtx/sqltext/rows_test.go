package sqltext

import (
	"slices"
	"strings"
	"testing"
)

func TestQuery(t *testing.T) {
	for _, tt := range []struct{ sql, with, main string }{
		{"select 1", "", "select 1"},
		{"Values (1), (2)", "", "Values (1), (2)"},
		{"table t", "", "table t"},
		{"(select 1) union all (select 2)", "", "(select 1) union all (select 2)"},
		{"(with a as (select 1) select * from a)", "", "(with a as (select 1) select * from a)"},
		{"select f(@id, @payload->>'x') -- why", "", "select f(($1::text), ($2::jsonb)->>'x')"},
		{"insert into t values (@id) returning *", "", "insert into t values (($1::text)) returning *"},
		{"update t set a = 1 where b <@ @payload returning a", "", "update t set a = 1 where b <@ ($1::jsonb) returning a"},
		{"delete from t returning 1", "", "delete from t returning 1"},
		{"merge into t using s on t.id = s.id when matched then delete returning t.*", "", "merge into t using s on t.id = s.id when matched then delete returning t.*"},
		{"select 'into', (select x from y) as \"into\" from t for update", "", "select 'into', (select x from y) as \"into\" from t for update"},
		{"with a as (select 1) select * from a", "with a as (select 1)", "select * from a"},
		{"WITH a AS (SELECT 1)\n\tINSERT INTO t SELECT * FROM a RETURNING x", "WITH a AS (SELECT 1)", "INSERT INTO t SELECT * FROM a RETURNING x"},
		{"with a (x, y) as materialized (select 1, 2), b as not materialized (table a) /* ) */ update t set a = 1 from b returning 1",
			"with a (x, y) as materialized (select 1, 2), b as not materialized (table a) /* ) */", "update t set a = 1 from b returning 1"},
		{"with values as (select 1), table_a as (values (2)) table values", "with values as (select 1), table_a as (values (2))", "table values"},
		{"with a as (select 1) (select * from a)", "with a as (select 1)", "(select * from a)"},
		{"with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) cycle n set c to true default false using p select n from r",
			"with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) cycle n set c to true default false using p", "select n from r"},
		{"with a as (delete from t returning $$) select$$) select 1", "with a as (delete from t returning $$) select$$)", "select 1"},
		{"with a as (insert into t values (@id) returning id) select @shard_key, id from a", "with a as (insert into t values (($1::text)) returning id)", "select ($2::text), id from a"},
	} {
		got, ok := parseOne(t, tt.sql).Query()
		lead, _, _ := strings.Cut(strings.ToUpper(tt.main), " ")
		changes := slices.Contains([]string{"INSERT", "UPDATE", "DELETE", "MERGE"}, lead)
		if want := (Query{With: tt.with, Main: tt.main, Changes: changes}); !ok || got != want {
			t.Errorf("%s:\n got %+v, %t\nwant %+v", tt.sql, got, ok, want)
		}
	}
}

func TestNoQuery(t *testing.T) {
	for _, sql := range []string{
		"insert into t values (1)", "update t set a = (select b from c)", "delete from t", "merge into t using s on true when matched then delete",
		"insert into t values ('returning')", `update t set "returning" = 1`, "insert into t (select 1 as x /* returning */)",
		"select 1 into unlogged u", "with a as (select 1) select * into u from a", "with a as (delete from t returning 1) insert into u select * from a",
		"call p(@id)", "do $$ begin return; end $$", "show all", "explain select 1", "notify x", "set local a = 1", "truncate t", "with", "with a as (select 1)",
		"refresh materialized view v", "()", "create table u as select 1",
	} {
		if got, ok := parseOne(t, sql).Query(); ok {
			t.Errorf("%s: got %+v, want none", sql, got)
		}
	}
}

func parseOne(t *testing.T, sql string) Statement {
	t.Helper()
	statements, err := Parse(sql)
	if err != nil || len(statements) != 1 {
		t.Fatalf("%s: got %d statements, %v", sql, len(statements), err)
	}
	return statements[0]
}
