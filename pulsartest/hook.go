package pulsartest

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// A Verdict decides how a command is handled. The zero value is Pass.
type Verdict struct {
	action action
	err    error
	delay  time.Duration
}

type action int

const (
	pass action = iota
	drop
	disconnect
	answer
)

// The verdicts, in addition to those of Fail.
var (
	Pass       = Verdict{}                   // the command is handled as if there were no hook
	Drop       = Verdict{action: drop}       // the command is lost
	Disconnect = Verdict{action: disconnect} // the connection is closed instead
	// Confirm answers a client's command as if the broker had carried it out, but has no other effect. A command that
	// has no answer is lost. A command that asks for something, such as a lookup, passes.
	Confirm = Verdict{action: answer}
)

// Fail answers a client's command with an error instead of carrying it out. The code is a name of ServerError in
// Pulsar's protocol (PulsarApi.proto), such as PersistenceError; Fail panics at any other name. Clients react in a
// special way to some codes: after ServiceNotReady they connect again; after TopicNotFound, TopicTerminatedError
// and ProducerFenced most clients give up. A command that has no answer, such as an acknowledgement without
// AckWithResponse, is lost. Commands from the broker pass.
func Fail(code, message string) Verdict {
	number, ok := wire.ParseServerError(code)
	if !ok {
		panic(fmt.Sprintf("pulsartest: Fail with code %q, want a ServerError of Pulsar's protocol, such as "+
			"PersistenceError", code))
	}
	return Verdict{action: answer, err: failf(number, "%s", message)}
}

// After returns v delayed by d, counted from when the broker read the command or queued it for the client. Later
// commands of the same connection in the same direction wait, too.
func (v Verdict) After(d time.Duration) Verdict {
	v.delay += d
	return v
}

// Command describes a command to a hook. Fields that the command does not have are zero.
type Command struct {
	Type         string // Pulsar's name: SEND, ACK, REDELIVER_UNACKNOWLEDGED_MESSAGES …
	FromBroker   bool   // the broker sends it; if not, the client does
	Connection   string // the client's address
	Topic        string // full name
	Subscription string // name
	Consumer     string // name
	Producer     string // name

	IDs             []MessageID // of ACK, REDELIVER_…, MESSAGE, SEND_RECEIPT, SEEK
	Cumulative      bool        // of ACK
	Permits         int         // of FLOW
	RedeliveryCount uint32      // of MESSAGE
}

// MessageID names an entry of a topic, or one message of a batch.
type MessageID struct {
	Ledger, Entry int64 // as in pulsar.MessageID
	Partition     int   // -1 if the topic is not a partition
	BatchIndex    int   // -1 if the message is not in a batch
}

// SetHook sets a hook, which sees every command before the command has an effect, and decides how the command is
// handled. By default there is no hook. SetHook replaces an earlier hook; nil removes it. Commands under way may still
// go to the earlier hook.
//
// Each connection calls the hook from two goroutines, one for each direction. A hook that blocks holds up only this
// direction of this connection. The hook may call the Server's methods except Close.
func (s *Server) SetHook(hook func(Command) Verdict) {
	if hook == nil {
		s.hooked.Store(nil)
		return
	}
	s.hooked.Store(&hook)
}

// ask returns the verdict of the hook on a command. If the hook lets the command pass, ask returns the verdict of the
// rules. The caller holds no lock.
func (s *Server) ask(c *session, cmd wire.Command, fromBroker bool) Verdict {
	hook := s.hooked.Load()
	if hook == nil && !s.hasRules.Load() {
		return Pass
	}
	d := Command{Type: cmd.Type().String(), FromBroker: fromBroker, Connection: c.conn.RemoteAddr().String()}
	if m, ok := cmd.(described); ok {
		s.mu.Lock()
		m.describe(c, &d)
		s.mu.Unlock()
	}
	v := Pass
	if hook != nil {
		v = (*hook)(d)
	}
	if v.action == pass && s.hasRules.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		verdict := s.rules.judge(d)
		return verdict.After(v.delay)
	}
	return v
}

func (d *Command) setTopic(name string) {
	if n, err := parseTopic(name); err == nil {
		d.Topic = n.String()
	}
}

func (d *Command) setProducer(c *session, id uint64) {
	if p, ok := c.producers[id]; ok {
		d.Topic, d.Producer = p.topic.name.String(), p.name
	}
}

func (d *Command) setConsumer(c *session, id uint64) {
	if k, ok := c.consumers[id]; ok {
		d.Topic, d.Subscription, d.Consumer = k.sub.topic.name.String(), k.sub.name, k.name
	}
}

func (d *Command) addIDs(ids ...wire.MessageID) {
	for _, id := range ids {
		d.IDs = append(d.IDs, MessageID{int64(id.Ledger), int64(id.Entry), int(id.Partition), int(id.BatchIndex)})
	}
}
