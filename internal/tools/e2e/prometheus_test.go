package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestPrometheus lets promtool check the metrics, and a real Prometheus read them.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	s.mustPost("/v1/orders", order("secret-id", "secret-key"), http.StatusCreated)
	response, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = response.Body
	out, err := check.CombinedOutput()
	response.Body.Close()
	if err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	prometheus := startPrometheus(t, strings.TrimPrefix(s.url, "http://"))
	for query, want := range map[string]string{
		`txsvc_transactions_total{kind="order.create",outcome="committed"}`:                  "1",
		`txsvc_deliveries_total{path="half",result="delivered"}`:                             "1",
		`sum(txsvc_queue_messages_total)`:                                                    "1",
		`count(txsvc_stage_seconds_count{kind="order.create"})`:                              "5",
		`http_request_duration_seconds_count{method="POST",route="/v1/orders",status="201"}`: "1",
		`txsvc_build_info`:                      "1",
		`txsvc_in_flight`:                       "0",
		`txsvc_delivery_pending`:                "0",
		`txsvc_delivery_oldest_pending_seconds`: "0",
		`txsvc_duplicates_suspected_total`:      "0",
		`count({__name__=~".+",id!=""})`:        "", // labels never hold ids or keys
		`count({__name__=~".+",shard_key!=""})`: "",
	} {
		await.Success(t, 20*time.Second, func() error {
			got, err := ask(prometheus, query)
			if err != nil || got != want {
				return fmt.Errorf("%s: got %q (%v), want %q", query, got, err, want)
			}
			return nil
		})
	}
}

// startPrometheus starts one that scrapes the target, with files of rules.
func startPrometheus(t *testing.T, target string, rules ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: txsvc\n    static_configs: [{targets: ['%s']}]\n", target)
	if len(rules) > 0 {
		text = strings.Replace(text, "scrape_interval: 1s", "scrape_interval: 1s, evaluation_interval: 1s", 1) + fmt.Sprintf("rule_files: ['%s']\n", strings.Join(rules, "', '"))
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	log := &logBuffer{addr: make(chan string, 1)}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", tail(log.String(), 2000))
		}
	})
	return "http://" + addr
}

// ask returns the value of the only sample that the query gives, or "" when it gives none.
func ask(prometheus, query string) (string, error) {
	response, err := http.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any } `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	if len(answer.Data.Result) == 0 {
		return "", nil
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1]), nil
}
