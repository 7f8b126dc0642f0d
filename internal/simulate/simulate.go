// Package simulate plays an outage: messages come at a rate, handlers of several instances call a service that is down
// for a while, and failed messages come back by the policies of a Consumer and a Worker. The simulation has discrete
// events, and no code waits.
package simulate

import (
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Setup describes an outage and its consumers.
type Setup struct {
	Rate        float64       // messages a second, evenly spaced
	Instances   int           // consumers of a Shared subscription, each with a Worker
	Concurrency int           // handlers that each Worker runs at a time
	Handler     time.Duration // the duration of a call, also of one that fails
	Queue       int           // ReceiverQueueSize

	Before  time.Duration // time until the outage begins
	Outage  time.Duration // length of the outage
	Partial float64       // the fraction of calls that fail in the outage; 1 for all

	Nack          backoff.RedeliveryBackoff
	MaxDeliveries uint32        // 0 for no limit
	RetryFrom     time.Duration // nacks with this delay or a longer one go to the retry topic; 0 for none
	Tick          time.Duration // of the broker's delayed delivery, for the retry topic

	// Arguments of WithPauseOnFailure. Window is 0 for none.
	Window int
	Ratio  float64
	Pause  backoff.RedeliveryBackoff

	MaxUnacked  int           // limit of a consumer's unacknowledged messages; 0 for no limit
	MaxTogether int           // limit of all consumers' unacknowledged messages; 0 for no limit
	Longest     time.Duration // the simulation ends this long after the outage if the consumers have not recovered
	MostEvents  int           // limit of events, and of messages sent; 0 for no limit
}

// Result has the figures of a simulation.
type Result struct {
	Calls     int           // during the outage
	Peak      float64       // calls a second, the most in any step
	Backlog   int           // the most messages that no handler had begun
	Waiting   int           // the most messages that waited for their redelivery
	Unsettled int           // the most messages that were neither acknowledged nor dead
	Dead      int           // dead letters
	Handled   int           // messages acknowledged
	Recovered bool          // at most one second's messages are unsettled
	After     time.Duration // time from the outage's end to the recovery
	Step      time.Duration // between Points
	Points    []Point       // from the beginning on
}

// Point is one step: the calls in it, and the messages at its end.
type Point struct {
	Calls            int
	Backlog, Waiting int
	Dead             int // since the beginning
}

// Run simulates until the consumers have recovered, or until Setup.Longest is over. It returns an error if that takes
// more than Setup.MostEvents.
func Run(s Setup) (Result, error) {
	w := newWorld(s)
	err := w.run()
	return w.result(), err
}

// message is a message that is not settled.
type message struct {
	number      int            // its place in the broker's order
	count       uint32         // redelivery count
	brokerCount uint32         // the count that other instances get
	counts      map[int]uint32 // by instance that had it, the count that the instance remembers
	holder      int            // the instance that has it, or had it last
	due         time.Duration  // when that instance handles it again
	kept        bool           // it failed in an outage, and the instance has kept it since
}

// event is one thing that happens in the simulation.
type event struct {
	at   time.Duration
	seq  int // orders events of the same time
	kind kind
	msg  *message
	of   int // number of the instance
	era  int // for pauseEnds and waitEnds: the number of the instance's outage
}

type kind uint8

const (
	arrives    kind = iota // a message is published
	succeeds               // a handler returns nil
	fails                  // a handler returns an error
	probeFails             // a probe in a Worker's outage returns an error
	delayEnds              // a message that waits in memory is due
	retryDue               // a message of the retry topic is due
	retrySent              // the broker sends a due message of the retry topic
	sentAgain              // the broker sends a message again
	pauseEnds              // the pause of an outage is over
	waitEnds               // the wait for messages, after the pause, is over
)

// events are a heap.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// fifo is a queue.
type fifo struct {
	all  []*message
	head int
}

func (f *fifo) len() int        { return len(f.all) - f.head }
func (f *fifo) push(m *message) { f.all = append(f.all, m) }

// pop returns the first message, or nil if there is none.
func (f *fifo) pop() *message {
	if f.len() == 0 {
		return nil
	}
	m := f.all[f.head]
	f.all[f.head] = nil
	f.head++
	if f.head > 1024 && 2*f.head > len(f.all) {
		f.all, f.head = append([]*message(nil), f.all[f.head:]...), 0
	}
	return m
}

// take removes and returns the message at a place.
func (f *fifo) take(place int) *message {
	m := f.all[f.head+place]
	f.all = slices.Delete(f.all, f.head+place, f.head+place+1)
	return m
}

// sort puts the messages into the broker's order.
func (f *fifo) sort() {
	slices.SortFunc(f.all[f.head:], func(a, b *message) int { return a.number - b.number })
}
