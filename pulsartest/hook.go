package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// A Hook sees every command before it has an effect and decides on it. It is
// called on the connection's own goroutines, one for each direction: it may
// block, which holds up that direction of that connection, and may call the
// Server's methods except Close.
type Hook func(Command) Verdict

// Verdict is what becomes of a command.
type Verdict int

// The verdicts.
const (
	Pass       Verdict = iota // as if there were no hook
	Drop                      // the command is lost
	Disconnect                // the connection is closed instead
)

// Direction is who sends a command.
type Direction int

// The directions.
const (
	FromClient Direction = iota
	FromBroker
)

// Command describes a command to a Hook. Fields that the command has not are
// zero.
type Command struct {
	Type         string    // Pulsar's name: SEND, ACK, REDELIVER_UNACKNOWLEDGED_MESSAGES …
	From         Direction // who sends it
	Connection   string    // the client's address
	Topic        string    // full name
	Subscription string    // name
	Consumer     string    // name
	Producer     string    // name

	IDs             []MessageID // of ACK, REDELIVER_…, MESSAGE, SEND_RECEIPT, SEEK
	Cumulative      bool        // of ACK
	Permits         int         // of FLOW
	RedeliveryCount uint32      // of MESSAGE
}

// MessageID names an entry of a topic, or one message of a batch.
type MessageID struct {
	Ledger, Entry int64 // as in pulsar.MessageID
	Partition     int   // -1 when the topic is not a partition
	BatchIndex    int   // -1 when it is not one of a batch
}

// SetHook replaces the hook; nil is none. Commands under way may still go to
// the old one.
func (s *Server) SetHook(hook Hook) {
	if hook == nil {
		s.hooked.Store(nil)
		return
	}
	s.hooked.Store(&hook)
}

// ask puts a command to the hook. The caller holds no lock.
func (s *Server) ask(c *session, cmd wire.Command, from Direction) Verdict {
	hook := s.hooked.Load()
	if hook == nil {
		return Pass
	}
	return (*hook)(s.describe(c, cmd, from))
}

func (s *Server) describe(c *session, cmd wire.Command, from Direction) Command {
	d := Command{Type: cmd.Type().String(), From: from, Connection: c.conn.RemoteAddr().String()}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := cmd.(type) {
	case *wire.Lookup:
		d.setTopic(m.Topic)
	case *wire.PartitionedMetadata:
		d.setTopic(m.Topic)
	case *wire.Producer:
		d.setTopic(m.Topic)
		d.Producer = m.Name
	case *wire.Send:
		d.setProducer(c, m.Producer)
	case *wire.SendReceipt:
		d.setProducer(c, m.Producer)
		if m.ID != nil { // a client may send anything
			d.addIDs(*m.ID)
		}
	case *wire.SendError:
		d.setProducer(c, m.Producer)
	case *wire.CloseProducer:
		d.setProducer(c, m.Producer)
	case *wire.Subscribe:
		d.setTopic(m.Topic)
		d.Subscription, d.Consumer = m.Subscription, m.Name
	default:
		d.ofConsumer(c, cmd)
	}
	return d
}

// ofConsumer describes the commands of a consumer that exists.
func (d *Command) ofConsumer(c *session, cmd wire.Command) {
	switch m := cmd.(type) {
	case *wire.Message:
		d.setConsumer(c, m.Consumer)
		d.RedeliveryCount = m.RedeliveryCount
		d.addIDs(m.ID)
	case *wire.Flow:
		d.setConsumer(c, m.Consumer)
		d.Permits = int(m.Permits)
	case *wire.Ack:
		d.setConsumer(c, m.Consumer)
		d.Cumulative = m.AckType == wire.Cumulative
		d.addIDs(m.IDs...)
	case *wire.AckResponse:
		d.setConsumer(c, m.Consumer)
	case *wire.Redeliver:
		d.setConsumer(c, m.Consumer)
		d.addIDs(m.IDs...)
	case *wire.Seek:
		d.setConsumer(c, m.Consumer)
		if m.ID != nil {
			d.addIDs(*m.ID)
		}
	case *wire.Unsubscribe:
		d.setConsumer(c, m.Consumer)
	case *wire.CloseConsumer:
		d.setConsumer(c, m.Consumer)
	case *wire.GetLastMessageID:
		d.setConsumer(c, m.Consumer)
	case *wire.ActiveConsumerChange:
		d.setConsumer(c, m.Consumer)
	}
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
