package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// A scenario is a program whose trace should be the same on every broker.
type scenario struct {
	name string // of the scenario and of its trace
	run  func(*script)
	// true: only for brokers with batch-index acknowledgement; false: only for brokers without it, which is Pulsar's
	// default
	indexed bool
	differs map[string]string // by version of Pulsar: why its trace differs from that of judge
}

// judge is the version of Pulsar that the broker in process imitates.
const judge = "4.0"

var groups = []struct {
	name      string
	scenarios []scenario
}{
	{"acknowledgements", ackScenarios},
	{"batches", batchScenarios},
	{"redelivery counts", countScenarios},
	{"Shared and permits", choiceScenarios},
	{"Failover", failoverScenarios},
	{"Key_Shared", keySharedScenarios},
	{"positions", positionScenarios},
	{"delayed delivery", delayedScenarios},
	{"producers", producerScenarios},
	{"topics and errors", topicScenarios},
	{"partitions and names", partitionScenarios},
	{"schemas", schemaScenarios},
	{"limits", limitScenarios},
	{"the Go client", clientScenarios},
}

var update = flag.Bool("update", false, "write the traces of the broker at PULSAR_URL to testdata")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil { // the tests mostly wait
		panic(err)
	}
	os.Exit(logtest.Quiet{M: m}.Run())
}

// TestFidelity plays each scenario on the broker in process, and compares its trace with that of a real Pulsar in
// testdata. If PULSAR_URL and PULSAR_ADMIN_URL name a real broker, it plays the scenarios that fit the batch-index
// setting of this broker on it, and compares these traces, too.
func TestFidelity(t *testing.T) {
	broker := broker(t)
	for _, g := range groups {
		for _, sc := range g.scenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				if broker.url != "" && broker.indexed == sc.indexed {
					compareReal(t, sc, broker)
				}
				for version := range sc.differs {
					require.NotEqual(t, read(t, traceFile(sc, judge)), read(t, traceFile(sc, version)),
						"the trace of Pulsar %s does not differ from that of Pulsar %s", version, judge)
				}
				var options []pulsartest.Option
				if sc.indexed {
					options = append(options, pulsartest.WithBatchIndexAcknowledgment())
				}
				s := pulsartest.NewServer(t, options...)
				same(t, traceFile(sc, judge), play(t, sc, s.URL(), s.AdminURL(), 60*time.Millisecond),
					"the broker in process")
			})
		}
	}
}

// compareReal plays sc on a real broker, and compares the trace with the recorded trace. With -update it records the
// trace.
func compareReal(t *testing.T, sc scenario, broker real) {
	file := traceFile(sc, broker.version)
	trace := play(t, sc, broker.url, broker.admin, 400*time.Millisecond)
	if *update && (broker.version == judge || sc.differs[broker.version] != "") {
		require.NoError(t, os.WriteFile(file, []byte(trace), 0o666))
		return
	}
	for range 2 { // a busy broker may pause for longer than script.quiet
		if read(t, file) == trace {
			break
		}
		t.Logf("playing the scenario again on Pulsar %s, after the trace\n%s", broker.version, trace)
		trace = play(t, sc, broker.url, broker.admin, time.Second)
	}
	same(t, file, trace, "Pulsar "+broker.version)
}

// same compares a trace with that in file, and shows where they begin to differ.
func same(t *testing.T, file, trace, who string) {
	t.Helper()
	text := read(t, file)
	if text == trace {
		return
	}
	want, got := strings.Split(text, "\n"), strings.Split(trace, "\n")
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	from := max(i-3, 0)
	t.Errorf("%s differs from %s at line %d; after\n  %s\nwant\n  %s\ngot\n  %s", who, file, i+1,
		strings.Join(want[from:i], "\n  "),
		strings.Join(want[i:min(i+12, len(want))], "\n  "), strings.Join(got[i:min(i+12, len(got))], "\n  "))
}

// traceFile returns the path of the trace for a version: its own trace if sc has one, otherwise that of judge.
func traceFile(sc scenario, version string) string {
	name := sc.name
	if sc.differs[version] != "" {
		name += "." + version
	}
	return filepath.Join("testdata", name+".trace")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// real is a real broker.
type real struct {
	url, admin string
	version    string // such as 4.0
	indexed    bool   // with batch-index acknowledgement
}

// broker returns the broker at PULSAR_URL, or the zero value if that is not set.
func broker(t *testing.T) real {
	r := real{url: os.Getenv("PULSAR_URL"), admin: os.Getenv("PULSAR_ADMIN_URL")}
	if r.url == "" {
		return r
	}
	s := &script{t: t, admin: r.admin}
	_, version := s.call(http.MethodGet, "/admin/v2/brokers/version", "")
	r.version = strings.Join(strings.SplitN(string(version), ".", 3)[:2], ".")
	_, conf := s.call(http.MethodGet, "/admin/v2/brokers/configuration/runtime", "")
	var settings map[string]string
	require.NoError(t, json.Unmarshal(conf, &settings))
	r.indexed = settings["acknowledgmentAtBatchIndexLevelEnabled"] == "true"
	return r
}

func play(t testing.TB, sc scenario, url, admin string, quiet time.Duration) string {
	s := &script{t: t, url: url, admin: admin, quiet: quiet, ledgers: map[uint64]int{},
		topic: fmt.Sprintf("fidelity-%s-%x", sc.name, rand.Uint32())}
	sc.run(s)
	for _, c := range slices.Clone(s.open) {
		_ = c.net.Close()
	}
	return strings.ReplaceAll(strings.Join(s.trace, "\n")+"\n", s.topic, "T")
}
