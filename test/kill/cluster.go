package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// breakBrokers has all types' messages fail at once on a cluster of two brokers, and moves all topics to the other broker again and again. At
// the third time it kills the broker that has them, which then starts again. The first broker's process has ZooKeeper and the bookie as well.
func breakBrokers() {
	name := cmp.Or(os.Getenv("PULSAR_NAME"), "kill")
	first := &member{name: name, env: []string{"PULSAR_CLUSTER=yes"}}
	second := &member{name: name + "-2", env: []string{"PULSAR_JOIN=" + name, "PULSAR_CONF_metadataStoreSessionTimeoutMillis=10000"}}
	first.start()
	second.start()
	// Of the processes too. By HTTP, since to others the first broker, which is a standalone one, says that it has all topics.
	check(os.Setenv("PULSAR_URL", first.admin+","+strings.TrimPrefix(second.admin, "http://")))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv("PULSAR_URL"), Logger: quiet()})
	check(err)
	defer client.Close()
	var runs []*clusterRun
	for kind := range strings.SplitSeq(*types, ",") {
		for _, batched := range []bool{false, true} {
			runs = append(runs, startRun(client, kind, batched))
		}
	}
	var faults []time.Time
	for back, end := (chan struct{})(nil), time.Now().Add(*limit); !over(runs) && time.Now().Before(end); {
		wait(*every, runs)
		if back == nil || isClosed(back) {
			faults = append(faults, time.Now())
			broke(runs)
			first.move([]*member{second, first}[len(faults)%2])
			fmt.Fprintf(os.Stderr, "%v: move %d\n", time.Since(runs[0].began).Round(time.Second), len(faults))
		}
		if len(faults) == 3 && back == nil {
			wait(*every, runs)
			faults = append(faults, time.Now())
			broke(runs)
			second.script("kill")
			fmt.Fprintf(os.Stderr, "%v: killed\n", time.Since(runs[0].began).Round(time.Second))
			back = make(chan struct{})
			go func() {
				defer close(back)
				second.start("-keep")
				fmt.Fprintf(os.Stderr, "%v: back\n", time.Since(runs[0].began).Round(time.Second))
			}()
		}
	}
	fmt.Println(columns)
	good := true
	for _, r := range runs {
		r.stop()
		r.faults = faults
		r.ends(r.began, r.dir)
		fmt.Println(r.row(r.kind, r.batched, "log"))
		good = good && r.isGood()
	}
	judge(good)
}

// clusterRun is one of those that the brokers work for at once.
type clusterRun struct {
	result
	kind      string
	batched   bool
	dir       string
	history   *history.Writer
	dead      func() int
	began     time.Time
	processes []*exec.Cmd
}

func startRun(client pulsar.Client, kind string, batched bool) *clusterRun {
	r := &clusterRun{kind: kind, batched: batched, began: time.Now()}
	var topic string
	topic, r.dir, r.history, r.dead = prepare(client, kinds[kind], batched)
	processes := 2
	if kinds[kind] == pulsar.Exclusive {
		processes = 1
	}
	for range processes {
		r.processes = append(r.processes, start(topic, kinds[kind], r.dir, false))
	}
	return r
}

// broke notes that all consumers may have lost their connections.
func broke(runs []*clusterRun) {
	for _, r := range runs {
		r.history.Write(history.Event{Kind: history.Disconnected})
	}
}

func (r *clusterRun) stop() {
	for _, p := range r.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	r.processes = nil
}

// over counts dead letters, ends runs that are at an end, and reports whether all are.
func over(runs []*clusterRun) bool {
	all := true
	for _, r := range runs {
		if len(r.processes) == 0 {
			continue
		}
		if r.result.dead = r.dead(); r.result.dead < *messages {
			all = false
			continue
		}
		r.took = time.Since(r.began).Round(time.Second).String()
		r.stop()
	}
	return all
}

func wait(d time.Duration, runs []*clusterRun) {
	for end := time.Now().Add(d); time.Now().Before(end) && !over(runs); {
		time.Sleep(100 * time.Millisecond)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// member is a broker of the cluster.
type member struct {
	name  string
	env   []string
	admin string
}

func (m *member) script(args ...string) string {
	cmd := exec.Command("test/scripts/pulsar", args...)
	cmd.Env = append(append(os.Environ(), "PULSAR_NAME="+m.name), m.env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	check(err)
	return string(out)
}

func (m *member) start(args ...string) {
	for line := range strings.Lines(m.script(append([]string{"start"}, args...)...)) {
		line = strings.TrimSpace(line)
		if url, ok := strings.CutPrefix(line, "export PULSAR_ADMIN_URL="); ok {
			m.admin = url
		}
	}
}

// move moves all topics to a broker.
func (m *member) move(to *member) {
	var bundles struct{ Boundaries []string }
	check(admin.Call(bg, m.admin, "GET", "namespaces/public/default/bundles", nil, &bundles))
	for i := range bundles.Boundaries[1:] {
		path := fmt.Sprintf("namespaces/public/default/%s_%s/unload?destinationBroker=%s", bundles.Boundaries[i], bundles.Boundaries[i+1],
			strings.TrimPrefix(to.admin, "http://"))
		if err := admin.Call(bg, m.admin, "PUT", path, nil, nil); err != nil {
			fmt.Fprintln(os.Stderr, "kill: moving a bundle:", err) // it moves the next time
		}
	}
}
