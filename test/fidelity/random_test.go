package fidelity

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

var (
	randomRuns = flag.Int("random", 4, "how many random programs TestRandom plays")
	randomSeed = flag.Uint64("random.seed", 1, "the seed of the first program; each further program adds 1")
)

// TestRandom plays random programs on the broker in process and on a real one, and compares the traces. If the traces
// differ, it repeats the program with more time for the real broker. Seeds beyond the first hundred may show these
// known differences. After a seek beyond acknowledged messages, Pulsar's backlog is one too low. If the owner of a key
// has no permits when it leaves, Pulsar sends the owner's messages only at the next flow. On Exclusive, Pulsar
// sometimes sends one more entry than the broker in process.
func TestRandom(t *testing.T) {
	broker := broker(t)
	if broker.url == "" {
		t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	for i := range *randomRuns {
		seed := *randomSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			server := pulsartest.NewServer(t)
			var mine, real string
			for try, quiet := range []time.Duration{250 * time.Millisecond, 700 * time.Millisecond} {
				topic := fmt.Sprintf("random-%d-%d-%08x", seed, try, rand.Uint32())
				mine = playRandom(t, seed, topic, server.URL(), server.AdminURL(), 40*time.Millisecond)
				real = playRandom(t, seed, topic, broker.url, broker.admin, quiet)
				if mine == real {
					return
				}
			}
			require.Equal(t, real, mine)
		})
	}
}

func playRandom(t *testing.T, seed uint64, topic, url, admin string, quiet time.Duration) string {
	s := &script{t: t, url: url, admin: admin, quiet: quiet, ledgers: map[uint64]int{}, topic: topic}
	r := &random{script: s, rng: rand.New(rand.NewPCG(seed, 1)), on: map[uint64]*conn{}}
	r.play()
	for _, c := range s.open {
		_ = c.net.Close()
	}
	return strings.ReplaceAll(strings.Join(s.trace, "\n")+"\n", topic, "T")
}

// random is a program of two clients with consumers, and a producer.
type random struct {
	*script
	rng       *rand.Rand
	kind      string
	batches   bool
	clients   [2]*conn
	producer  *conn
	consumers []uint64
	on        map[uint64]*conn // the connection of each consumer
	next      uint64
	ids       []messageID // of received messages
}

func (r *random) play() {
	r.kind = []string{"Shared", "Shared", "Key_Shared", "Exclusive", "Failover"}[r.rng.IntN(5)]
	r.batches = r.rng.IntN(2) == 0
	r.clients = [2]*conn{r.dial("a"), r.dial("b")}
	r.produce()
	r.subscribe()
	r.drain()
	for range 14 {
		r.step()
		r.drain()
		if r.rng.IntN(4) == 0 {
			r.stats("stats")
		}
	}
	r.stats("end")
}

func (r *random) step() {
	x := r.rng.IntN(100)
	switch {
	case x < 20:
		r.publish()
	case len(r.consumers) == 0 || x >= 88:
		r.subscribe()
	case x < 40:
		c, n := r.some(), 1+r.rng.IntN(6)
		r.note("# flow %d %d", c, n)
		r.on[c].flow(c, n)
	case x < 58 && len(r.ids) > 0:
		r.ack()
	case x < 72 && len(r.ids) > 0:
		var of []messageID
		if r.rng.IntN(4) > 0 {
			of = r.someIDs()
		}
		c := r.some()
		r.note("# redeliver%s by %d", r.names(of), c)
		r.on[c].redeliver(c, of...)
	case x < 78:
		r.close()
	case x < 81:
		r.note("# unload")
		r.callAdmin("PUT", "unload", "")
		time.Sleep(r.quiet)
		r.drain()
		r.consumers = nil
		r.produce()
	case x < 84:
		r.seek()
	default:
		r.note("# skip")
		r.callAdmin("POST", "subscription/s/skip/2", "")
	}
}

func (r *random) produce() {
	r.producer = r.dial("p")
	r.producer.produce(1)
}

func (r *random) drain() {
	for _, c := range r.clients {
		r.ids = append(r.ids, c.drain()...)
	}
}

func (r *random) some() uint64 { return r.consumers[r.rng.IntN(len(r.consumers))] }

func (r *random) someIDs() (ids []messageID) {
	for range 1 + r.rng.IntN(3) {
		ids = append(ids, r.ids[r.rng.IntN(len(r.ids))])
	}
	return ids
}

func (r *random) names(ids []messageID) (text string) {
	for _, id := range ids {
		text += " " + r.id(id)
	}
	return text
}

func (r *random) publish() {
	n := 1 + r.rng.IntN(4)
	r.note("# publish %d", n)
	for range n {
		key := fmt.Sprintf(`partition_key: "k%d"`, r.rng.IntN(5))
		if r.batches && r.rng.IntN(2) == 0 {
			r.producer.batch(2+r.rng.IntN(3), key)
		} else {
			r.producer.publish(fmt.Sprint(r.rng.IntN(1000)), key)
		}
	}
}

func (r *random) subscribe() {
	c := r.clients[r.rng.IntN(2)]
	r.next++
	r.note("# subscribe %d on %s", r.next, c.name)
	c.subscribe(r.next, r.kind)
	r.elect()
	if !strings.Contains(r.trace[len(r.trace)-1], "subscribe: ") { // accepted
		r.consumers, r.on[r.next] = append(r.consumers, r.next), c
	}
}

// elect waits until a Failover subscription has an active consumer.
func (r *random) elect() {
	if r.kind == "Failover" {
		time.Sleep(1200 * time.Millisecond)
	}
}

func (r *random) ack() {
	c, of := r.some(), r.someIDs()
	if r.rng.IntN(5) == 0 {
		r.note("# ack up to %s by %d", r.id(of[0]), c)
		r.on[c].askAck(c, "Cumulative", of[0])
		return
	}
	r.note("# ack%s by %d", r.names(of), c)
	r.on[c].askAck(c, "Individual", of...)
}

func (r *random) close() {
	c := r.some()
	r.note("# close %d", c)
	r.on[c].closeConsumer(c)
	r.consumers = slices.DeleteFunc(r.consumers, func(other uint64) bool { return other == c })
	r.elect()
}

func (r *random) seek() {
	c, to := r.some(), "message_publish_time: 1"
	if len(r.ids) > 0 && r.rng.IntN(2) == 0 {
		id := r.someIDs()[0]
		to = fmt.Sprintf("message_id { %s }", id.text())
		r.note("# seek %d to %s", c, r.id(id))
	} else {
		r.note("# seek %d to the beginning", c)
	}
	r.on[c].ask(fmt.Sprintf(`seek { consumer_id: %d %s }`, c, to))
	r.drain()
	r.consumers = nil
}
