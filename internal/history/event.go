// Package history checks how a client treated messages. A history is JSON lines that a client in any language writes;
// docs/history.md describes the format. A Reader parses files and merges them by time, and a Checker finds messages
// that were lost, early or doubled. Neither keeps whole files in memory; the Checker keeps the last lines of each
// message.
package history

import (
	"encoding/json"
	"fmt"
)

// Kind is the kind of an event.
type Kind string

// Events of a message. Published, Nacked, Snoozed, Reconsumed and Acking are written before the call, Acked after it.
const (
	Published    Kind = "published"
	Received     Kind = "received"
	Delivered    Kind = "delivered"
	Nacked       Kind = "nacked"
	Snoozed      Kind = "snoozed"
	Reconsumed   Kind = "reconsumed"
	Acking       Kind = "acking"
	Acked        Kind = "acked"
	Refused      Kind = "refused"
	DeadLettered Kind = "dead-lettered"
)

// Events of a consumer.
const (
	Started      Kind = "started"
	Disconnected Kind = "disconnected"
	Killed       Kind = "killed"
	Closed       Kind = "closed"
)

// Drained says that the broker has no message left.
const Drained Kind = "drained"

// Event is one line of a history.
type Event struct {
	At        int64 // microseconds, by one clock for all files
	Kind      Kind
	Message   string
	Consumer  string
	Key       string // of Published
	Delay     int64  // of Nacked, Snoozed and Reconsumed, in microseconds
	Count     int    // redelivery count of Delivered; -1 if unknown
	Retry     int    // of Delivered: how often the message went through the retry topic before; -1 if unknown
	Copy      string // the broker's id of the delivered message; "" if unknown
	Confirmed bool   // of Acked: the broker has answered
	Note      string // for people
}

// presence says whether a kind of event has a field, or may have it.
type presence int

const (
	absent presence = iota
	optional
	required
)

// shape says which fields a kind of event has, apart from at, event and note.
type shape struct{ message, consumer, key, delay, count, retry, copied, confirmed presence }

// kinds are all kinds, in the order of docs/history.md.
var kinds = []Kind{Published, Received, Delivered, Nacked, Snoozed, Reconsumed, Acking, Acked, Refused, DeadLettered,
	Started, Disconnected, Killed, Closed, Drained}

var shapes = map[Kind]shape{
	Published:    {message: required, key: optional},
	Received:     {message: required, consumer: required},
	Delivered:    {message: required, consumer: required, count: optional, retry: optional, copied: optional},
	Nacked:       {message: required, consumer: required, delay: required, copied: optional},
	Snoozed:      {message: required, consumer: required, delay: required, copied: optional},
	Reconsumed:   {message: required, consumer: required, delay: required, copied: optional},
	Acking:       {message: required, consumer: required},
	Acked:        {message: required, consumer: required, confirmed: required},
	Refused:      {message: required, consumer: optional},
	DeadLettered: {message: required, consumer: optional},
	Started:      {consumer: required},
	Disconnected: {consumer: optional},
	Killed:       {consumer: required},
	Closed:       {consumer: required},
	Drained:      {},
}

// line is an Event as JSON. A field is nil if it is absent.
type line struct {
	At        *int64  `json:"at"`
	Event     *string `json:"event"`
	Consumer  *string `json:"consumer,omitempty"`
	Message   *string `json:"message,omitempty"`
	Key       *string `json:"key,omitempty"`
	Delay     *int64  `json:"delay,omitempty"`
	Count     *int64  `json:"count,omitempty"`
	Retry     *int64  `json:"retry,omitempty"`
	Copy      *string `json:"copy,omitempty"`
	Confirmed *bool   `json:"confirmed,omitempty"`
	Note      *string `json:"note,omitempty"`
}

// MarshalJSON writes the fields that events of this kind have.
func (e Event) MarshalJSON() ([]byte, error) {
	kind, has := string(e.Kind), shapes[e.Kind]
	l := line{At: &e.At, Event: &kind}
	if has.consumer == required || has.consumer == optional && e.Consumer != "" {
		l.Consumer = &e.Consumer
	}
	if has.message == required {
		l.Message = &e.Message
	}
	if has.key == optional && e.Key != "" {
		l.Key = &e.Key
	}
	if has.delay == required {
		l.Delay = &e.Delay
	}
	if has.count == optional && e.Count >= 0 {
		count := int64(e.Count)
		l.Count = &count
	}
	if has.retry == optional && e.Retry >= 0 {
		retry := int64(e.Retry)
		l.Retry = &retry
	}
	if has.copied == optional && e.Copy != "" {
		l.Copy = &e.Copy
	}
	if has.confirmed == required {
		l.Confirmed = &e.Confirmed
	}
	if e.Note != "" {
		l.Note = &e.Note
	}
	return json.Marshal(l)
}

// String returns the event as a line of a history.
func (e Event) String() string {
	text, err := e.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("%s %s: %v", e.Kind, e.Message, err)
	}
	return string(text)
}
