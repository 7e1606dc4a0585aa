package sqltext

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func one(text string, args ...string) []Statement { return []Statement{{Text: text, Args: args}} }

func many(texts ...string) []Statement {
	var statements []Statement
	for _, text := range texts {
		statements = append(statements, Statement{Text: text})
	}
	return statements
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		sql  string
		want []Statement
	}{
		{"plain", `select 1`, many(`select 1`)},
		{"semicolon at the end", "select 1;\n", many(`select 1`)},
		{"two", `select 1; select 2`, many(`select 1`, `select 2`)},
		{"empty ones do not count", ` ;; select 1 ;-- x
			;`, many(`select 1`)},
		{"every parameter has its type", `select @id, @shard_key, @payload, @local_arg, @selector_arg`,
			one(`select ($1::text), ($2::text), ($3::jsonb), ($4::jsonb), ($5::jsonb)`, ID, ShardKey, Payload, LocalArg, SelectorArg)},
		{"a parameter again", `select @payload->>'a', @id, @payload->>'b'`,
			one(`select ($1::jsonb)->>'a', ($2::text), ($1::jsonb)->>'b'`, Payload, ID)},
		{"numbers begin anew", `insert into a values (@shard_key, @id); insert into b values (@id)`, []Statement{
			{Text: `insert into a values (($1::text), ($2::text))`, Args: []string{ShardKey, ID}},
			{Text: `insert into b values (($1::text))`, Args: []string{ID}},
		}},
		{"casts", `select @id::uuid, (@payload->>'n')::bigint, 'x'::text`,
			one(`select ($1::text)::uuid, (($2::jsonb)->>'n')::bigint, 'x'::text`, ID, Payload)},
		{"subscript", `select @payload['a']`, one(`select ($1::jsonb)['a']`, Payload)},
		{"slice", `select a[@id:2], a[1:@id]`, one(`select a[($1::text):2], a[1:($1::text)]`, ID)},
		{"glued to brackets", `select f(@id,@shard_key),array[@id]`, one(`select f(($1::text),($2::text)),array[($1::text)]`, ID, ShardKey)},
		{"after a comment", `select/**/@id, -- x
@id`, one("select/**/($1::text), -- x\n($1::text)", ID)},
		{"operators with @", `select a @> b, a <@ b, a @@ b, a @? b, a @@@ b, a@>b, a<@b, a@@b, @ 5, @-5, a @ b`,
			many(`select a @> b, a <@ b, a @@ b, a @? b, a @@@ b, a@>b, a<@b, a@@b, @ 5, @-5, a @ b`)},
		{"operators before and after a parameter", `select @payload@>'{}', @payload @> @local_arg, a <@ @payload, @payload@?'$.a'`,
			one(`select ($1::jsonb)@>'{}', ($1::jsonb) @> ($2::jsonb), a <@ ($1::jsonb), ($1::jsonb)@?'$.a'`, Payload, LocalArg)},
		{"an operator that ends in @ before a column", `select a <@tags`, many(`select a <@tags`)},
		{"@ before a quoted name", `select @"id"`, many(`select @"id"`)},
		{"an operator ends where a comment begins", "select 1 +-- @nobody ;\n2, 3 */* ; @nobody */ @id",
			one("select 1 +-- @nobody ;\n2, 3 */* ; @nobody */ ($1::text)", ID)},
		{"string", `select '@id; ''@nobody;', '\'; select ';'`, many(`select '@id; ''@nobody;', '\'`, `select ';'`)},
		{"escape string", `select E'\'@id;\\', e'a''b;'; select 2`, many(`select E'\'@id;\\', e'a''b;'`, `select 2`)},
		{"escape string goes on after a line break", "select E'a' -- it's\n '\\';@nobody'; select 2",
			many("select E'a' -- it's\n '\\';@nobody'", `select 2`)},
		{"a plain string goes on without escapes", "select 'a'\n'\\'; select 2", many("select 'a'\n'\\'", `select 2`)},
		{"two strings on a line are two", `select E'a' '\'; select 2`, many(`select E'a' '\'`, `select 2`)},
		{"a name that ends in e is no prefix", `select namE'\'; select 2`, many(`select namE'\'`, `select 2`)},
		{"bit, national, Unicode strings", `select b';', X'1F', n'@id;', U&'\0041;\', u&"d\0061t;@id"; select 2`,
			many(`select b';', X'1F', n'@id;', U&'\0041;\', u&"d\0061t;@id"`, `select 2`)},
		{"quoted name", `select "a;@id""b\"; select 2`, many(`select "a;@id""b\"`, `select 2`)},
		{"dollar quotes", `select $$;@id'$$, $a$;$$;$b$@nobody$a$, $Ä1$;$Ä1$; select 2`,
			many(`select $$;@id'$$, $a$;$$;$b$@nobody$a$, $Ä1$;$Ä1$`, `select 2`)},
		{"a dollar inside a name quotes nothing", `select a$b$c; select d$1, e$$; select 2`,
			many(`select a$b$c`, `select d$1, e$$`, `select 2`)},
		{"comments nest", `select 1 /* a /* b; @nobody */ ; ' */ ; select 2`, many(`select 1`, `select 2`)},
		{"comments around are left out", "/* a */ -- b\nselect /* c */ 1 -- d", many(`select /* c */ 1`)},
		{"a line comment ends at a carriage return", "select 1 -- x\r; select 2", many(`select 1`, `select 2`)},
		{"parentheses hold semicolons together", `create rule r as on insert to t do also (delete from a; delete from b); select 2`,
			many(`create rule r as on insert to t do also (delete from a; delete from b)`, `select 2`)},
		{"numbers", `select 1.5e-3, .5, 0x1F, 1_000, @id`, one(`select 1.5e-3, .5, 0x1F, 1_000, ($1::text)`, ID)},
		{"a sign before a parameter", `select - @id`, one(`select - ($1::text)`, ID)},
		{"beyond ASCII", `select 'é;', größe, 東京 from t; select 2`, many(`select 'é;', größe, 東京 from t`, `select 2`)},
		{"words that begin nothing", `select commit, "begin" from t where case when a then b end`,
			many(`select commit, "begin" from t where case when a then b end`)},
		{"allowed settings", `set local lock_timeout = '1s'; set constraints all deferred`,
			many(`set local lock_timeout = '1s'`, `set constraints all deferred`)},
		{"copy between files and tables", `copy t (stdin) from '/x'`, many(`copy t (stdin) from '/x'`)},
		{"with", `with a as (insert into t values (@id) returning x) select x from a`,
			one(`with a as (insert into t values (($1::text)) returning x) select x from a`, ID)},
		{"in parentheses", `(select 1); ((select 2))`, many(`(select 1)`, `((select 2))`)},
		{"in a transaction", `refresh materialized view concurrently v; reindex table t; cluster t using i; create index i on t (a)`,
			many(`refresh materialized view concurrently v`, `reindex table t`, `cluster t using i`, `create index i on t (a)`)},
		{"what ends with the transaction", `select pg_advisory_xact_lock(1), set_config('a.b', f(1, 2), true); create temp table t on commit drop as select 1; declare c cursor for select 1`,
			many(`select pg_advisory_xact_lock(1), set_config('a.b', f(1, 2), true)`, `create temp table t on commit drop as select 1`, `declare c cursor for select 1`)},
		{"names that only look like it", `insert into temp values (1); create table temp (a int); select pg_advisory_lock from t, 'set_config(1)'; select setseed.a`,
			many(`insert into temp values (1)`, `create table temp (a int)`, `select pg_advisory_lock from t, 'set_config(1)'`, `select setseed.a`)},
		{"notify is part of the transaction", `notify orders`, many(`notify orders`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.sql)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const (
		own     = " is not allowed: the service begins and ends the transaction"
		behind  = " is not allowed: it would stay behind in the connection, which others use next"
		outside = " is not allowed: PostgreSQL takes it outside of transactions only"
		rows    = " is not allowed: there is no client to send or take the rows"
		lock    = "; use pg_advisory_xact_lock, whose lock ends with the transaction"
		drop    = "; use CREATE TEMPORARY TABLE with ON COMMIT DROP"
	)
	for _, tt := range []struct{ sql, want string }{
		{``, `line 1, column 1: there is no statement`},
		{" ;\n-- nothing\n/* here */ ; ", `line 1, column 1: there is no statement`},
		{`select @nobody`, `line 1, column 8: the parameter @nobody is unknown: there are @id, @shard_key, @payload, @local_arg, @selector_arg; the operator @ needs a space behind it`},
		{`select @ID`, `line 1, column 8: the parameter @ID is unknown: there are @id, @shard_key, @payload, @local_arg, @selector_arg; the operator @ needs a space behind it`},
		{`select @id2`, `line 1, column 8: the parameter @id2 is unknown: there are @id, @shard_key, @payload, @local_arg, @selector_arg; the operator @ needs a space behind it`},
		{`select @id$`, `line 1, column 8: the parameter @id$ is unknown: there are @id, @shard_key, @payload, @local_arg, @selector_arg; the operator @ needs a space behind it`},
		{`select 'é', a=@id`, `line 1, column 14: =@id can be read in two ways: put a space before the @ of a parameter, or after the operator =@`},
		{`select a <@payload`, `line 1, column 10: <@payload can be read in two ways: put a space before the @ of a parameter, or after the operator <@`},
		{`select @@id`, `line 1, column 8: @@id can be read in two ways: put a space before the @ of a parameter, or after the operator @@`},
		{`select -@id`, `line 1, column 8: -@id can be read in two ways: put a space before the @ of a parameter, or after the operator -@`},
		{`select a@id`, `line 1, column 9: put a space before the parameter @id`},
		{`select f(1)@id`, `line 1, column 12: put a space before the parameter @id`},
		{`select a[1]@id`, `line 1, column 12: put a space before the parameter @id`},
		{`select 'a'@id`, `line 1, column 11: put a space before the parameter @id`},
		{`select "a"@id`, `line 1, column 11: put a space before the parameter @id`},
		{`select 1@id`, `line 1, column 9: put a space before the parameter @id`},
		{`select @id@id`, `line 1, column 11: put a space before the parameter @id`},
		{`select $1`, `line 1, column 8: positional parameters are not allowed: use @id, @shard_key, @payload, @local_arg, @selector_arg`},
		{`select 1$1`, `line 1, column 9: positional parameters are not allowed: use @id, @shard_key, @payload, @local_arg, @selector_arg`},
		{"select 1,\n  'a", `line 2, column 3: this ' is not closed`},
		{`select E'a\'`, `line 1, column 9: this ' is not closed`},
		{`select E'a\`, `line 1, column 9: this ' is not closed`},
		{`select "a""`, `line 1, column 8: this " is not closed`},
		{`select $a$ $b$ $$`, `line 1, column 8: this $a$ is not closed`},
		{`select /* a /* b */ 1`, `line 1, column 8: this comment is not closed`},
		{`select (1`, `line 1, column 8: this ( is not closed`},
		{`select f(1; select 2`, `line 1, column 9: this ( is not closed`},
		{`select 1)`, `line 1, column 9: there is no ( for this )`},
		{"select '\x00'", `line 1, column 9: the character U+0000 is not allowed`},
		{"select '\xff'", `line 1, column 9: the text is not valid UTF-8`},
		{"select 1;\n selct * from t", `line 2, column 2: no statement of PostgreSQL begins with SELCT; is SELECT meant?`},
		{`insert_into t values (1)`, `line 1, column 1: no statement of PostgreSQL begins with INSERT_INTO`},
		{`"select" 1`, `line 1, column 1: no statement of PostgreSQL begins like this`},
		{`@id`, `line 1, column 1: no statement of PostgreSQL begins like this`},
		{`vacuum t`, `line 1, column 1: VACUUM` + outside},
		{`create unique index concurrently i on t (a)`, `line 1, column 1: CREATE with CONCURRENTLY` + outside},
		{`drop index concurrently i`, `line 1, column 1: DROP with CONCURRENTLY` + outside},
		{`alter table t detach partition p concurrently`, `line 1, column 1: ALTER with CONCURRENTLY` + outside},
		{`reindex table concurrently t`, `line 1, column 1: REINDEX with CONCURRENTLY` + outside},
		{`reindex database d`, `line 1, column 1: REINDEX DATABASE` + outside},
		{`create database d`, `line 1, column 1: CREATE DATABASE` + outside},
		{`drop tablespace d`, `line 1, column 1: DROP TABLESPACE` + outside},
		{`alter system reset all`, `line 1, column 1: ALTER SYSTEM` + outside},
		{`cluster`, `line 1, column 1: CLUSTER without a table` + outside},
		{`load 'x'`, `line 1, column 1: LOAD` + behind},
		{`begin`, `line 1, column 1: BEGIN` + own},
		{"select 1;\n/* x */ Commit;", `line 2, column 9: COMMIT` + own},
		{`start transaction`, `line 1, column 1: START TRANSACTION` + own},
		{`end`, `line 1, column 1: END` + own},
		{`rollback to savepoint a`, `line 1, column 1: ROLLBACK` + own},
		{`abort`, `line 1, column 1: ABORT` + own},
		{`savepoint a`, `line 1, column 1: SAVEPOINT` + own},
		{`release savepoint a`, `line 1, column 1: RELEASE` + own},
		{`prepare transaction 'a'`, `line 1, column 1: PREPARE TRANSACTION` + own},
		{`prepare p as select 1`, `line 1, column 1: PREPARE` + behind},
		{`deallocate all`, `line 1, column 1: DEALLOCATE` + behind},
		{`set transaction isolation level serializable`, `line 1, column 1: SET TRANSACTION` + own},
		{`set local transaction isolation level serializable`, `line 1, column 1: SET TRANSACTION` + own},
		{`set session lock_timeout = 1`, `line 1, column 1: SET SESSION` + behind},
		{`set local session authorization x`, `line 1, column 1: SET SESSION` + behind},
		{`set lock_timeout = 1`, `line 1, column 1: SET without LOCAL` + behind},
		{`set "x.y" = 1`, `line 1, column 1: SET without LOCAL` + behind},
		{`set`, `line 1, column 1: SET without LOCAL` + behind},
		{`reset all`, `line 1, column 1: RESET` + behind},
		{`discard all`, `line 1, column 1: DISCARD` + behind},
		{`listen a`, `line 1, column 1: LISTEN` + behind},
		{`unlisten *`, `line 1, column 1: UNLISTEN` + behind},
		{"select 1;\n select f(\"pg_advisory_lock\" (1))", `line 2, column 11: pg_advisory_lock` + behind + lock},
		{`select pg_catalog.PG_TRY_ADVISORY_LOCK_SHARED /* x */ (1)`, `line 1, column 19: pg_try_advisory_lock_shared` + behind + lock},
		{`select pg_advisory_unlock_all()`, `line 1, column 8: pg_advisory_unlock_all is not allowed: the locks of the connection are the service's` + lock},
		{`select set_config('app.tenant', @id, false)`, `line 1, column 8: set_config without true as its third argument` + behind},
		{`select set_config('app.tenant', @id, not true)`, `line 1, column 8: set_config without true as its third argument` + behind},
		{`select set_config('app.tenant', @id, is_local => true)`, `line 1, column 8: set_config without true as its third argument` + behind},
		{`with a as (select dblink_connect('x', 'host=y')) select 1`, `line 1, column 19: dblink_connect` + behind},
		{`select setseed(0.5)`, `line 1, column 8: setseed` + behind},
		{`create temp table t (a int)`, `line 1, column 1: CREATE TEMPORARY` + behind + drop},
		{`create or replace local temporary view v as select 1`, `line 1, column 1: CREATE TEMPORARY` + behind + drop},
		{`create temp table t (a int) on commit delete rows`, `line 1, column 1: CREATE TEMPORARY` + behind + drop},
		{`create function pg_temp.f() returns int language sql as 'select 1'`, `line 1, column 1: CREATE TEMPORARY` + behind + drop},
		{`select 1 into local temp t`, `line 1, column 1: INTO TEMPORARY` + behind + drop},
		{`declare c cursor with hold for select 1`, `line 1, column 1: a cursor WITH HOLD` + behind},
		{`load 'x'`, `line 1, column 1: LOAD` + behind},
		{`copy t (a, b) from stdin`, `line 1, column 1: COPY with STDIN` + rows},
		{`copy (select 1) to stdout`, `line 1, column 1: COPY with STDOUT` + rows},
	} {
		got, err := Parse(tt.sql)
		if err == nil {
			t.Errorf("%q: got %q, want an error", tt.sql, got)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok || err.Error() != tt.want {
			t.Errorf("%q:\n got %v\nwant %s", tt.sql, err, tt.want)
		}
	}
}

func TestLocate(t *testing.T) {
	const sql = "/* é */ select 1;\n  insert into t (a, é)\n  values (@id, @payload->>'x', nosuch)\n  -- end\n"
	for _, tt := range []struct {
		statement    int
		at           string // the token in the statement's text
		line, column int
	}{
		{0, "select", 1, 9},
		{0, "1", 1, 16},
		{1, "insert", 2, 3},
		{1, "é", 2, 21},
		{1, "($1::text)", 3, 11},
		{1, "($2::jsonb)", 3, 16},
		{1, "->>", 3, 24},
		{1, "nosuch", 3, 32},
	} {
		statements, err := Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(statements[tt.statement].Text, tt.at)
		character := utf8.RuneCountInString(before) + 1
		if line, column := Locate(sql, tt.statement, character); line != tt.line || column != tt.column {
			t.Errorf("%s of statement %d: got %d:%d, want %d:%d", tt.at, tt.statement, line, column, tt.line, tt.column)
		}
	}
	if line, column := Locate(sql, 1, 0); line != 2 || column != 3 {
		t.Errorf("no character: got %d:%d, want the statement's begin", line, column)
	}
}
