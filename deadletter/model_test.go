package deadletter_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// job is work for a separate process, which can be killed.
type job struct {
	URL, Admin, Topic string
	Filter            deadletter.Filter
	Max               int
	New               bool
	Purge             string // the file for purged letters; "" for a replay
}

const jobVariable = "DEADLETTER_JOB"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(jobVariable); ok { // a job must not run the tests, since these start jobs
		time.AfterFunc(15*time.Minute, func() { os.Exit(4) })
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "8") // most tests wait most of the time
	_ = flag.Set("rapid.checks", "10") // the command line can set another number; each check runs a dozen processes
	os.Exit(logtest.Quiet{M: m}.Run())
}

func (j job) run() error {
	b := &broker{t: fatal{}, url: j.URL, admin: j.Admin}
	b.client = b.connect()
	d := b.open(j.Topic)
	d.Hurry(150 * time.Millisecond)
	var report deadletter.Report
	var err error
	if j.Purge != "" {
		var file *os.File
		file, err = os.OpenFile(j.Purge, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		report, err = d.Purge(bg, deadletter.PurgeOptions{Filter: j.Filter, Export: file})
	} else {
		report, err = d.Replay(bg, deadletter.ReplayOptions{Filter: j.Filter, Max: j.Max, New: j.New})
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	return err
}

// fatal is a testing.TB for code outside of a test.
type fatal struct{ testing.TB }

func (fatal) Helper()                           {}
func (fatal) Cleanup(func())                    {}
func (fatal) Output() io.Writer                 { return os.Stderr }
func (fatal) FailNow()                          { os.Exit(3) }
func (fatal) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }

// command returns the command of a process that does the job.
func (j job) command() (cmd *exec.Cmd, out *bytes.Buffer) {
	text, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// Random replays and purges with random filters run, while processes are killed and connections are cut. Every letter
// is replayed, or is exported and then purged. If the broker drops duplicates, no letter is replayed twice, and the
// letters of each key keep their order.
func TestModel(t *testing.T) {
	t.Parallel()
	b := newInProcess(t, pulsartest.WithMaxMessageSize(9000))
	rapid.Check(t, func(rt *rapid.T) { (&model{b: b, dir: t.TempDir()}).check(rt) })
}

type model struct {
	b     *broker
	dir   string
	tp    topics
	n     int
	kinds []string
}

func (m *model) check(t *rapid.T) {
	m.tp = m.b.topics(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "partitions"))
	m.publish(t)
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			m.publish(t)
		case 1:
			m.purge(t)
		default:
			m.replay(t)
		}
	}
	m.run(t, m.job(), 0, "")
	m.verify(t)
}

// publish publishes letters in batches, single and in chunks. Letters of one key are in order.
func (m *model) publish(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "producers") {
		batch := rapid.SampledFrom([]int{1, 1, 3, 7}).Draw(t, "batch")
		o := pulsar.ProducerOptions{Topic: m.tp.dlq}
		size := 10
		if batch == 1 && rapid.IntRange(0, 3).Draw(t, "chunked") == 0 {
			o.EnableChunking, o.ChunkMaxMessageSize, size = true, 1000, rapid.SampledFrom([]int{3000, 30_000}).Draw(t,
				"size")
		}
		var msgs []*pulsar.ProducerMessage
		for range rapid.IntRange(1, 12).Draw(t, "letters") {
			l := m.tp.letter(m.n)
			kind := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "kind")
			l.Properties["kind"], l.Key = kind, rapid.SampledFrom([]string{"", "k", "l", "m"}).Draw(t, "key")
			l.Payload = make([]byte, size)
			for i := range l.Payload {
				l.Payload[i] = byte(rand.Uint32()) // random, so that it does not compress
			}
			m.kinds = append(m.kinds, kind)
			m.n++
			msgs = append(msgs, l)
		}
		m.b.publish(o, batch, msgs...)
	}
}

func (m *model) filter(t *rapid.T) deadletter.Filter {
	if kind := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "filter"); kind != "" {
		return deadletter.Filter{Properties: map[string]string{"kind": kind}}
	}
	return deadletter.Filter{}
}

func (m *model) job() job { return job{URL: m.b.url, Admin: m.b.admin, Topic: m.tp.dlq} }

func (m *model) replay(t *rapid.T) {
	j := m.job()
	j.Filter = m.filter(t)
	if rapid.Bool().Draw(t, "limit") {
		j.Max = rapid.IntRange(1, 20).Draw(t, "max")
	}
	for range rapid.IntRange(0, 3).Draw(t, "interruptions") {
		m.run(t, j, rapid.IntRange(1, 250).Draw(t, "command"),
			rapid.SampledFrom([]string{"kill", "kill", "cut", "unload"}).Draw(t, "fault"))
	}
	m.run(t, j, 0, "")
}

func (m *model) purge(t *rapid.T) {
	j := m.job()
	j.Filter, j.Purge = m.filter(t), m.dir+"/purged"
	if rapid.Bool().Draw(t, "interrupted") {
		m.run(t, j, rapid.IntRange(1, 60).Draw(t, "command"), "kill")
	}
	m.run(t, j, 0, "")
}

// run runs a process that does a job. The fault happens when the broker gets command number at of the process, counted
// from 1. If at is 0, there is no fault.
func (m *model) run(t *rapid.T, j job, at int, fault string) {
	cmd, out := j.command()
	require.NoError(t, cmd.Start())
	var count atomic.Int64
	var once sync.Once
	m.b.inProcess.SetHook(func(pulsartest.Command) pulsartest.Verdict {
		if at > 0 && int(count.Add(1)) == at {
			once.Do(func() {
				switch fault {
				case "kill":
					_ = cmd.Process.Kill()
				case "cut":
					go m.b.inProcess.DropConnections()
				case "unload":
					go m.b.inProcess.Unload(m.tp.dlq)
				}
			})
			if fault == "kill" {
				return pulsartest.Disconnect // so that later commands do not arrive, either
			}
		}
		return pulsartest.Pass
	})
	defer m.b.inProcess.SetHook(nil)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if errors.As(err, &exit) && fault != "" { // killed, or without a connection
			return
		}
		if err != nil { // print the error now, since it might not happen again when rapid repeats the check
			fmt.Printf("%v after %s at command %d: %s\n", err, fault, at, out)
		}
		require.NoError(t, err, out.String())
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-done
		t.Fatalf("a job hangs: %s", out.String())
	}
}

func (m *model) verify(t *rapid.T) {
	type identity struct {
		topic    string
		producer string
		sequence uint64
	}
	partitions, err := m.b.client.TopicPartitions(m.tp.retry)
	require.NoError(t, err)
	of := map[string]identity{} // by the letter's number
	order := map[string][]int{}
	for _, topic := range partitions {
		highest := map[string]int64{}
		seen := map[identity]bool{}
		for _, msg := range m.b.inProcess.Messages(topic) {
			id := identity{topic, msg.Producer, msg.SequenceID}
			number := msg.Properties["number"]
			if seen[id] {
				require.Equal(t, id, of[number], "two letters have one sequence id")
				continue
			}
			seen[id] = true
			last, ok := highest[msg.Producer]
			require.True(t, !ok || int64(msg.SequenceID) > last, "letter %s would be dropped: %v after %d", number, id,
				last)
			highest[msg.Producer] = int64(msg.SequenceID)
			require.NotContains(t, of, number, "letter %s was replayed twice: %v", number, id)
			of[number] = id
			if msg.Key != "" {
				var i int
				_, _ = fmt.Sscan(number, &i)
				lane := msg.Key + msg.Properties["kind"]
				order[lane] = append(order[lane], i)
			}
		}
	}
	exported, _ := os.ReadFile(m.dir + "/purged")
	for i := range m.n {
		number := fmt.Sprint(i)
		if _, ok := of[number]; !ok {
			require.Contains(t, string(exported), fmt.Sprintf("%q:%q", "number", number), "letter %s is lost", number)
		}
	}
	for lane, all := range order {
		require.True(t, slices.IsSorted(all), "%s: %v", lane, all)
	}
	require.Zero(t, m.b.backlog(m.tp.dlq, own))
	for _, name := range m.b.inProcess.Topics() {
		if strings.HasPrefix(name, m.tp.dlq+"-"+own) {
			require.Empty(t, m.b.inProcess.Subscriptions(name), "the journal is not tidied up")
		}
	}
}
