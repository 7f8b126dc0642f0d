// Package deploy_test runs the dashboard and the alerts against a real Prometheus that scrapes examples/observed.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

var (
	update = flag.Bool("update", false, "write the pictures of the panels to docs/img")
	scrape = flag.Duration("scrape", 40*time.Second, "how long Prometheus scrapes before the test asks it")
)

type dashboard struct {
	Panels []panel
}

type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr, LegendFormat string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("grafana.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// query returns an expression with Grafana's variables filled in.
func query(expr string) string {
	return strings.NewReplacer("$__rate_interval", "10s", "$subscription", ".*").Replace(expr)
}

// alerts returns the rules' expressions by name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	require.NotEmpty(t, all)
	return all
}

// The test needs no Prometheus. It also checks that docs/observability.md names all metrics, and docs/production.md all
// alerts.
func TestExpressionsUseKnownMetrics(t *testing.T) {
	source, err := os.ReadFile("../metrics.go")
	require.NoError(t, err)
	gauges, err := os.ReadFile("../gauges.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	remedies, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	name := regexp.MustCompile(`redelivery_[a-z_]+`)
	known := map[string]bool{}
	for _, found := range name.FindAllString(string(source)+string(gauges), -1) {
		known[found] = true
		assert.Contains(t, string(doc), "`"+found+"`")
	}
	used := fmt.Sprint(alerts(t))
	for _, p := range readDashboard(t).Panels {
		used += fmt.Sprint(p.Targets)
	}
	for _, found := range name.FindAllString(used, -1) {
		assert.True(t, known[strings.TrimSuffix(strings.TrimSuffix(found, "_bucket"), "_count")], found)
	}
	for alert := range alerts(t) {
		assert.Contains(t, string(remedies), "`"+alert+"`")
	}
}

// Only failures to settle messages cause a critical alert. Other failures have alerts of their own.
func TestOnlyFailuresToSettleAreCritical(t *testing.T) {
	assert.Contains(t, alerts(t)["RedeliveryCannotSettle"],
		`redelivery_failures_total{operation=~"ack|reconsume|dead_letter|nack"}`)
	assert.Contains(t, alerts(t)["RedeliveryFailures"],
		`redelivery_failures_total{operation=~"receive|count"}`)
	assert.Contains(t, alerts(t)["RedeliveryAttemptLog"], "redelivery_attempt_log_lag_seconds")
}

// increase() alone would leave out the dead letters that an instance had before its first scrape.
func TestAlertsCountDeadLettersBeforeTheFirstScrape(t *testing.T) {
	dir := os.Getenv("PROMETHEUS_DIR")
	if dir == "" {
		t.Skip(`eval "$(test/scripts/prometheus)" sets PROMETHEUS_DIR`)
	}
	output, err := exec.Command(filepath.Join(dir, "promtool"), "test", "rules",
		"testdata/first-scrape.yaml").CombinedOutput()
	require.NoError(t, err, string(output))
}

// A real Prometheus scrapes examples/observed. The test asks it for each expression of the dashboard and the alerts.
func TestPrometheusHasDataForEachPanelAndAlert(t *testing.T) {
	dir := os.Getenv("PROMETHEUS_DIR")
	if dir == "" {
		t.Skip(`eval "$(test/scripts/prometheus)" sets PROMETHEUS_DIR`)
	}
	target, server, tmp := address(t), address(t), t.TempDir()
	example := filepath.Join(tmp, "observed")
	require.NoError(t, exec.Command("go", "build", "-o", example, "../../examples/observed").Run())
	start(t, example, "-listen", target)

	conf := filepath.Join(tmp, "prometheus.yml")
	rules, err := filepath.Abs("alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: observed, static_configs: [{targets: [%q]}]}]
`, rules, target), 0o600))
	promtool := func(stdin io.Reader, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "promtool"), args...)
		cmd.Stdin = stdin
		output, err := cmd.CombinedOutput()
		assert.NoError(t, err, string(output))
		t.Logf("promtool %s: %s", strings.Join(args[:2], " "), bytes.TrimSpace(output))
	}
	promtool(nil, "check", "config", conf)
	promtool(nil, "check", "rules", "alerts.yaml")
	start(t, filepath.Join(dir, "prometheus"), "--config.file="+conf, "--storage.tsdb.path="+filepath.Join(tmp, "data"),
		"--web.listen-address="+server, "--log.level=error")
	time.Sleep(*scrape)
	page, err := http.Get("http://" + target + "/metrics")
	require.NoError(t, err)
	defer page.Body.Close()
	promtool(page.Body, "check", "metrics")

	p := &prometheus{t, "http://" + server}
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			got := p.ask(query(target.Expr))
			assert.NotEmpty(t, got, "panel %q has no data for %s", panel.Title, query(target.Expr))
			numbers := 0
			for _, s := range got {
				if s.Value[1] != "NaN" {
					numbers++
				}
			}
			assert.Positive(t, numbers, "panel %q has no numbers for %s", panel.Title, query(target.Expr))
			t.Logf("panel %q: %d series for %s", panel.Title, len(got), query(target.Expr))
		}
	}
	threshold := regexp.MustCompile(`\s>\s[0-9.]+\s*$`)
	for alert, expr := range alerts(t) {
		require.Regexp(t, threshold, expr)
		got, beyond := p.ask(threshold.ReplaceAllString(expr, "")), p.ask(expr)
		assert.NotEmpty(t, got, "alert %s has no data", alert)
		t.Logf("alert %s: %d series, %d beyond the threshold", alert, len(got), len(beyond))
	}
	var firing struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	p.get("/api/v1/alerts", nil, &firing)
	assert.NotEmpty(t, firing.Data.Alerts, "no alert fires, although the example has dead letters")
	if *update {
		for _, dark := range []bool{false, true} {
			name := map[bool]string{false: "light", true: "dark"}[dark]
			picture := draw(p, readDashboard(t).Panels[:6], dark)
			require.NoError(t, os.WriteFile("../../docs/img/observability-"+name+".svg", picture, 0o600))
		}
	}
}

// start starts a program and ends it with the test.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
}

// address returns an address at which no program listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// prometheus is the query API of Prometheus.
type prometheus struct {
	*testing.T
	url string
}

type series struct {
	Metric map[string]string
	Value  [2]any   // the answer to ask
	Values [][2]any // the answer to history
}

func (p *prometheus) ask(expr string) []series {
	p.Helper()
	var answer struct{ Data struct{ Result []series } }
	p.get("/api/v1/query", url.Values{"query": {expr}}, &answer)
	return answer.Data.Result
}

// history returns an expression's values, one for each second of the last period of length back.
func (p *prometheus) history(expr string, back time.Duration) []series {
	p.Helper()
	var answer struct{ Data struct{ Result []series } }
	now := time.Now().Unix()
	p.get("/api/v1/query_range", url.Values{"query": {expr}, "step": {"1"},
		"start": {strconv.FormatInt(now-int64(back.Seconds()), 10)}, "end": {strconv.FormatInt(now, 10)}}, &answer)
	return answer.Data.Result
}

func (p *prometheus) get(path string, values url.Values, into any) {
	p.Helper()
	answer, err := http.Get(p.url + path + "?" + values.Encode())
	require.NoError(p, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(p, err)
	require.Equal(p, http.StatusOK, answer.StatusCode, string(b))
	require.NoError(p, json.Unmarshal(b, into))
}
