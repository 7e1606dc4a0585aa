package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/verify"
)

// verification is a finished txsvc verify.
type verification struct {
	report verify.Report
	code   int
	stderr string
}

// verify runs txsvc verify as an operator would, with JSON, to its end. What is given in args comes last, and wins.
func (e *env) verify(urls []string, args ...string) *verification {
	e.t.Helper()
	return e.startVerify(urls, args...).wait()
}

// verifying is a txsvc verify that runs.
type verifying struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func (e *env) startVerify(urls []string, args ...string) *verifying {
	e.t.Helper()
	path, err := binary()
	if err != nil {
		e.t.Fatal(err)
	}
	all := []string{
		"verify", "--json", "--linger=0s", "--settle=1m", "--database-url=" + e.databaseURL, "--nameservers=" + strings.Join(e.nameservers, ","),
	}
	if len(urls) > 0 {
		all = append(all, "--url="+strings.Join(urls, ","))
	}
	v := &verifying{t: e.t, cmd: exec.CommandContext(e.t.Context(), path, append(all, args...)...)}
	v.cmd.Stdout, v.cmd.Stderr = &v.stdout, &v.stderr
	if err := v.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	return v
}

// interrupt ends the load, as Ctrl-C does.
func (v *verifying) interrupt() *verifying {
	v.t.Helper()
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		v.t.Fatalf("%v\n%s", err, v.stderr.String())
	}
	return v
}

func (v *verifying) wait() *verification {
	v.t.Helper()
	err := v.cmd.Wait()
	if exited, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exited.Exited()) {
		v.t.Fatalf("txsvc verify: %v\n%s", err, v.stderr.String())
	}
	done := &verification{code: v.cmd.ProcessState.ExitCode(), stderr: v.stderr.String()}
	if err := json.Unmarshal(v.stdout.Bytes(), &done.report); err != nil {
		v.t.Fatalf("the report of txsvc verify (exit code %d): %v\n%s%s", done.code, err, v.stdout.String(), done.stderr)
	}
	return done
}

// want checks the verdict and each kind of violation.
func (v *verification) want(t *testing.T, code int, lost, doubled, ghosts, unsent, falseAnswers uint64) {
	t.Helper()
	r := &v.report
	verdicts := []string{verify.Proved, verify.Violated, verify.Unproved}
	if v.code != code || r.Verdict != verdicts[code] {
		t.Errorf("got exit code %d and %q, want %d and %q: unproven %q\n%s", v.code, r.Verdict, code, verdicts[code], r.Unproven, v.stderr)
	}
	got := []uint64{r.Lost, r.Doubled, r.Ghosts, r.Unsent, r.FalseAnswers, r.HalfDone, r.WrongQueue, r.WrongContent, r.Inversions}
	if want := []uint64{lost, doubled, ghosts, unsent, falseAnswers, 0, 0, 0, 0}; !slices.Equal(got, want) {
		text := new(strings.Builder)
		_ = r.WriteText(text)
		t.Errorf("got lost, doubled, ghosts, unsent, false answers, half done, wrong queue, wrong content, inversions %v, want %v%s", got, want, text)
	}
}

// verifyCount is small, and large enough that each way of sending comes dozens of times.
const verifyCount = 1000

// TestVerify proves an honest run on two replicas, and then finds each thing that is broken by hand, with the same
// journal.
func TestVerify(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	urls := []string{e.start().ready().url, e.start().ready().url}
	journal := filepath.Join(t.TempDir(), "journal")
	v := e.verify(urls, "--count", fmt.Sprint(verifyCount), "--seed=1", "--keys=50", "--journal", journal)
	v.want(t, 0, 0, 0, 0, 0, 0)
	r := &v.report
	if r.Posted != verifyCount || r.Committed < verifyCount*9/10 || r.Committed != r.Visible || r.Rejected < 10 {
		t.Errorf("got %d posted, %d committed, %d visible, %d rejected of %d", r.Posted, r.Committed, r.Visible, r.Rejected, verifyCount)
	}
	for _, want := range []struct{ purpose, class string }{
		{"post", "committed"}, {"post", "rejected"}, {"post", "hung_up"}, {"post", "replayed"}, {"other", "idempotency_mismatch"}, {"get", "committed"},
	} {
		if r.Answers[want.purpose][want.class] < 3 {
			t.Errorf("only %d answers %s to %s: the load is not what it should be: %v", r.Answers[want.purpose][want.class], want.class, want.purpose, r.Answers)
		}
	}
	if names := r.Kinds; len(names) != 2 || r.Kinds[0].Committed == 0 || r.Kinds[1].Committed == 0 || r.Kinds[0].P50 <= 0 {
		t.Errorf("got kinds %+v, want orders and payments with latencies", r.Kinds)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "kind slow was left out") || r.Suspected == nil || *r.Suspected != 0 {
		t.Errorf("got notes %q, %v suspected duplicates", r.Notes, r.Suspected)
	}

	again := e.verify(urls, "--check-only", "--journal", journal)
	again.want(t, 0, 0, 0, 0, 0, 0)
	if again.report.Committed != r.Committed || again.report.Answers["post"]["committed"] != r.Answers["post"]["committed"] {
		t.Errorf("the journal's check has %d committed and answers %v, the run %d and %v", again.report.Committed, again.report.Answers, r.Committed, r.Answers)
	}
	if got, want := again.report.Kinds[0].P99, r.Kinds[0].P99; got <= 0 || got < want/2 || got > want*2 {
		t.Errorf("the journal's check has a p99 of %v ms, the run %v", got, want)
	}
	e.verify(nil, "--check-only", "--journal", journal).want(t, 0, 0, 0, 0, 0, 0)
	e.sabotage(urls, journal, r.Run)
}

// sabotage breaks one thing after the other, by hand.
func (e *env) sabotage(urls []string, journal, run string) {
	e.t.Helper()
	rows := e.oldest(run, 4)
	e.sendCopy(rows[0])
	v := e.verify(urls, "--check-only", "--journal", journal)
	v.want(e.t, 1, 0, 1, 0, 0, 0)
	if f := v.report.Findings; len(f) != 1 || f[0].Class != verify.Doubled || f[0].ID != rows[0] || len(f[0].History) < 2 {
		e.t.Errorf("got findings %+v, want that %s is doubled, with its history", f, rows[0])
	}

	// A message without its row: also the answer "committed" is untrue now.
	e.exec(`DELETE FROM txsvc.transactions WHERE id = $1`, rows[1])
	// A row that says to be delivered, and was not even sent.
	e.exec(`INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason, uniq_key,
			commit_log_offset, queue_offset, created_at, decided_at, delivered_at)
		SELECT 'v-' || $2 || '-000999999', kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason, uniq_key,
			commit_log_offset, queue_offset, created_at, decided_at, delivered_at FROM txsvc.transactions WHERE id = $1`, rows[2], run)
	// A row whose queue is not what was answered, and one with another result.
	e.exec(`UPDATE txsvc.transactions SET queue_id = (queue_id + 1) % 4 WHERE id = $1`, rows[2])
	e.exec(`UPDATE txsvc.transactions SET result = '{"order_id": "x"}' WHERE id = $1`, rows[3])
	// A transaction whose business change is gone.
	e.exec(`DELETE FROM payments WHERE id = (SELECT max(id) FROM payments)`)
	r := e.verify(nil, "--check-only", "--journal", journal).report
	if r.Verdict != verify.Violated || r.Lost != 1 || r.Doubled != 1 || r.Ghosts != 1 || r.Unsent != 1 || r.WrongQueue != 1 {
		e.t.Errorf("got %s: %d lost, %d doubled, %d ghosts, %d unsent, %d in a wrong queue; want one each", r.Verdict, r.Lost, r.Doubled, r.Ghosts, r.Unsent, r.WrongQueue)
	}
	if r.HalfDone != 3 { // also the one whose row is gone, and the one without an order
		e.t.Errorf("got %d half done, want 3", r.HalfDone)
	}
	if r.FalseAnswers != 3 || r.FalseBy[verify.FalseCommitted] != 1 || r.FalseBy[verify.FalseDiffers] != 2 {
		e.t.Errorf("got false answers %v, want 1 %s, 2 %s", r.FalseBy, verify.FalseCommitted, verify.FalseDiffers)
	}
}

// oldest returns ids of committed transactions of the run.
func (e *env) oldest(run string, n int) (ids []string) {
	e.t.Helper()
	err := e.db.QueryRow(e.t.Context(), `SELECT array_agg(id) FROM (SELECT id FROM txsvc.transactions
		WHERE id LIKE 'v-' || $1 || '-%' AND state = 'committed' AND kind = 'order.create' ORDER BY id LIMIT $2) t`, run, n).Scan(&ids)
	if err != nil || len(ids) != n {
		e.t.Fatalf("got ids %v, %v", ids, err)
	}
	return ids
}

func (e *env) exec(sql string, args ...any) {
	e.t.Helper()
	if tag, err := e.db.Exec(e.t.Context(), sql, args...); err != nil || tag.RowsAffected() != 1 {
		e.t.Fatalf("%s: %v, %v", sql, tag, err)
	}
}

// sendCopy publishes a visible message once more, as it is.
func (e *env) sendCopy(id string) {
	e.t.Helper()
	copies := e.visible()[id]
	if len(copies) != 1 {
		e.t.Fatalf("%s is visible %d times, want 1", id, len(copies))
	}
	m := copies[0]
	var own remoting.Properties
	for _, p := range m.Properties {
		if slices.Contains([]string{"KEYS", "TAGS", "SHARDING_KEY", "TX_ID", "TX_KIND", "verify"}, p.Name) {
			own = append(own, p)
		}
	}
	broker := e.brokerOf(id)
	_, err := e.mq.Send(e.t.Context(), broker, &remoting.SendRequest{
		Topic: m.Topic, QueueID: int(m.QueueID), UniqKey: m.UniqKey(), Properties: own, Body: m.Body,
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) brokerOf(id string) (broker string) {
	e.t.Helper()
	if err := e.db.QueryRow(e.t.Context(), `SELECT broker FROM txsvc.transactions WHERE id = $1`, id).Scan(&broker); err != nil {
		e.t.Fatal(err)
	}
	return broker
}

// TestVerifyWhileReplicasDie: one of two replicas is killed under load and started again, several times.
func TestVerifyWhileReplicasDie(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	steady, dying := e.start().ready(), e.start().ready()
	address := "TXSVC_LISTEN=" + strings.TrimPrefix(dying.url, "http://")
	running := e.startVerify([]string{steady.url, dying.url}, "--duration=10m", "--keys=20", "--seed=2", "--concurrency=16", "--request-timeout=5s")
	underLoad := func() {
		await.Success(t, time.Minute, func() error {
			if dying.metric(`txsvc_transactions_total`) < 50 {
				return errors.New("the replica is not under load")
			}
			return nil
		})
	}
	for range 3 {
		underLoad()
		dying.kill()
		dying = e.start(address).ready()
	}
	underLoad()
	v := running.interrupt().wait()
	v.want(t, 0, 0, 0, 0, 0, 0)
	if answers := v.report.Answers["post"]; answers["not_sent"] == 0 || answers["connection_broken"] == 0 {
		t.Errorf("got answers %v, want some that notice that the replica dies", answers)
	}
}

// TestVerifyCannotCheck: what is missing is named, and the exit code is 2.
func TestVerifyCannotCheck(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	journal := filepath.Join(t.TempDir(), "journal")
	e.verify([]string{s.url}, "--count=100", "--journal", journal).want(t, 0, 0, 0, 0, 0, 0)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env, args, want string
	}{
		"no service":        {"TXSVC_VERIFY_URL=http://127.0.0.1:1", "", "asking the service for its kinds"},
		"no database":       {"TXSVC_DATABASE_URL=postgres://x:hunter2@127.0.0.1:1/x", "", "asking the database"},
		"bad database":      {"TXSVC_DATABASE_URL=postgres://x:hunter2@127.0.0.1:x/x", "", "the database URL is not valid: invalid port"},
		"no name server":    {"TXSVC_NAMESERVERS=127.0.0.1:1", "", "asking where topic"},
		"name server unset": {"TXSVC_NAMESERVERS=", "--dir=nowhere", "no txsvc dev runs in nowhere"},
		"unknown kind":      {"", "--kind=x=1", `no kind "x"`},
		"no template":       {"", "--kind=slow=1", "kind slow needs a template"},
		"journal is there":  {"", "--journal=" + journal, "creating the journal"},
		"no journal":        {"", "--check-only --journal=nowhere", "opening the journal"},
		"journal not named": {"", "--check-only", "--check-only needs --journal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), path, append([]string{"verify", "--count=10"}, strings.Fields(tc.args)...)...)
			cmd.Env = append(os.Environ(), "TXSVC_VERIFY_URL="+s.url, "TXSVC_DATABASE_URL="+e.databaseURL,
				"TXSVC_NAMESERVERS="+strings.Join(e.nameservers, ","), tc.env) // the last of a name counts
			out, err := cmd.CombinedOutput()
			if exited, ok := errors.AsType[*exec.ExitError](err); !ok || exited.ExitCode() != 2 || !strings.Contains(string(out), tc.want) {
				t.Errorf("got %v and %s, want exit code 2 and %q", err, out, tc.want)
			}
			if strings.Contains(string(out), "hunter2") {
				t.Errorf("a password is printed: %s", out)
			}
		})
	}
}

// TestVerifyWithoutDatabase asks the service, and says so; interrupted, it checks what was posted until then.
func TestVerifyWithoutDatabase(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	e.databaseURL = ""
	v := e.verify([]string{s.url}, "--count=500", "--keys=10")
	v.want(t, 0, 0, 0, 0, 0, 0)
	if v.report.Rows != "get" || !strings.Contains(strings.Join(v.report.Notes, " "), "asked for with GET") {
		t.Errorf("got rows from %q, notes %q", v.report.Rows, v.report.Notes)
	}

	before := s.metric(`txsvc_transactions_total`)
	running := e.startVerify([]string{s.url}, "--duration=1h")
	await.Success(t, time.Minute, func() error {
		if s.metric(`txsvc_transactions_total`) < before+200 {
			return errors.New("not yet under load")
		}
		return nil
	})
	v = running.interrupt().wait()
	v.want(t, 0, 0, 0, 0, 0, 0)
	if v.report.Posted < 200 {
		t.Errorf("got %d posted, want at least 200", v.report.Posted)
	}
}

// TestVerifyLanes: what rows and answers say of lanes is the same. What differs is named, with both values, and so is what
// ends a load.
func TestVerifyLanes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.config = e.writeConfig(fmt.Sprintf(`
topics:
  %[1]s: {selector: {type: lanes, by: selector_arg, lanes: {default: {queues: [0, 1, 2, 3]}}}}
kinds:
  note: {topic: %[1]s, schema: note.json, local: {sql: "SELECT (@payload->>'n')::int AS n"}}
`, e.topic))
	if err := os.WriteFile(filepath.Join(filepath.Dir(e.config), "note.json"), []byte(`{"properties": {"n": {"type": "integer"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := e.start().ready()
	template := func(text string) string {
		path := filepath.Join(t.TempDir(), "template.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--payload=note=" + path
	}
	journal := filepath.Join(t.TempDir(), "journal")
	v := e.verify([]string{s.url}, "--count=50", "--seed=3", "--journal", journal, template(`{"n": {{n}}}`))
	v.want(t, 0, 0, 0, 0, 0, 0)
	if v.report.Load.Stopped != "" {
		t.Errorf("the load is said to have stopped: %s", v.report.Load.Stopped)
	}

	changes := []struct{ set, want string }{
		{`selector = 'lanes:other'`, `route.lane: "default" in an answer, "other" in the row`},
		{`selector = 'hash:default'`, `route.selector: "lanes" in an answer, "hash" in the row`},
		{`reason = 'x'`, `in an answer, "x" in the row`},
		{`result = '{"n": "x"}'`, `in an answer, "{\"n\":\"x\"}" in the row`},
		{`decided_at = '2001-02-03T04:05:06Z'`, `in an answer, "2001-02-03T04:05:06Z" in the row`},
	}
	var ids []string
	err := e.db.QueryRow(t.Context(), `SELECT array_agg(id ORDER BY id) FROM txsvc.transactions WHERE state = 'committed'`).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		e.exec(`UPDATE txsvc.transactions SET `+c.set+` WHERE id = $1`, ids[i])
	}
	r := e.verify(nil, "--check-only", "--journal", journal).report
	if r.FalseAnswers != uint64(len(changes)) || len(r.Findings) != len(changes) {
		t.Fatalf("got %d false answers, findings %+v, want %d", r.FalseAnswers, r.Findings, len(changes))
	}
	for i, c := range changes {
		if f := r.Findings[i]; f.ID != ids[i] || f.Class != verify.FalseDiffers || !strings.Contains(f.Detail, c.want) {
			t.Errorf("got %s of %s: %s, want %s of %s with %s", f.Class, f.ID, f.Detail, verify.FalseDiffers, ids[i], c.want)
		}
	}

	stopped := e.verify([]string{s.url}, "--count=50", template(`{"n": "{{n}}"}`))
	text := new(strings.Builder)
	_ = stopped.report.WriteText(text)
	for place, said := range map[string]string{"the log": stopped.stderr, "the report": text.String(), "unproven": strings.Join(stopped.report.Unproven, " ")} {
		if !strings.Contains(said, "was answered 400 invalid_request") || stopped.code != 2 {
			t.Errorf("exit code %d, and %s does not say why the load ended: %s", stopped.code, place, said)
		}
	}
}
