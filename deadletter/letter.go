package deadletter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Properties that a replay adds to a message.
const (
	PropertyReplayCount = publishing.ReplayCount // how often the letter was replayed
	PropertyReplayRun   = publishing.ReplayRun   // the id of the last replay
	PropertyReplayTopic = publishing.ReplayTopic // the topic that it was replayed to, without partition

	PropertyEditedBy   = publishing.EditedBy   // Edit.By, of the last Edit
	PropertyEditedTime = publishing.EditedTime // when the letter was published with that Edit, in ms since 1970
)

const (
	exceptionPrefix   = "EXCEPTION_"
	propertyException = exceptionPrefix + "TYPE"
)

// Letter is a dead letter. Fields that its sender did not set are empty: plain pulsar-client-go sets no reason.
type Letter struct {
	ID        string    `json:"id"`        // ledger:entry:partition, and :index in a batch
	Topic     string    `json:"topic"`     // with the partition
	Published time.Time `json:"published"` // when the message was published as a dead letter

	// Why it died.

	// DEAD_LETTER_TIME, or else Published
	Died         time.Time `json:"died"`
	Type         string    `json:"type,omitempty"`         // of the error
	Reason       string    `json:"reason,omitempty"`       // the error
	Origin       string    `json:"origin,omitempty"`       // the topic that the letter came from, without partition
	OriginID     string    `json:"originId,omitempty"`     // the message's ID in Origin
	Subscription string    `json:"subscription,omitempty"` // the subscription that the letter died on
	Replays      int       `json:"replays,omitempty"`      // how often the letter was replayed before

	// The original message.
	Key         string    `json:"key,omitempty"`         // of the original
	OrderingKey string    `json:"orderingKey,omitempty"` // likewise
	EventTime   time.Time `json:"eventTime,omitzero"`    // likewise
	// all properties, including those that other fields come from
	Properties map[string]string `json:"properties,omitempty"`
	// the version of the topic's schema with which the payload was written
	Schema    string `json:"schema,omitempty"`
	Encrypted bool   `json:"encrypted,omitempty"` // Payload is still encrypted
	// the letter was exported or purged with keys, so Payload may have been encrypted
	Decrypted bool `json:"decrypted,omitempty"`
	// the key or a property was not UTF-8, so the export changed it
	Altered bool   `json:"altered,omitempty"`
	Null    bool   `json:"null,omitempty"`    // a null value, not an empty one
	Size    int    `json:"size"`              // of the payload, in bytes
	Payload []byte `json:"payload,omitempty"` // in base64

	place
	to string // the topic that a replay publishes the letter to, without partition
}

// place is where a letter is in its topic.
type place struct {
	pos       position
	id        pulsar.MessageID
	batch     int  // number of letters in its entry
	chunked   bool // the letter has several entries
	partition int  // number of the partition
}

func newLetter(dlq string, partition int, msg pulsar.Message) *Letter {
	props := msg.Properties()
	l := &Letter{
		Topic: msg.Topic(), Published: msg.PublishTime(),
		Died: msg.PublishTime(),
		Type: first(256, props[propertyException]), Reason: first(1024, props[reconsume.PropertyExceptionMessage]),
		Key: msg.Key(), OrderingKey: msg.OrderingKey(), Properties: props,
		Encrypted: msg.GetEncryptionContext() != nil, Null: msg.IsNullValue(),
		Size: len(msg.Payload()), Payload: msg.Payload(),
		place: place{positionOf(msg.ID()), msg.ID(), int(max(msg.ID().BatchSize(), 1)), msg.ID().BatchIdx() < 0,
			partition},
	}
	l.setOrigin(dlq)
	l.ID = l.pos.id(partition) // upstream's ID names partition 0 for every partition
	if l.batch > 1 {
		l.ID += fmt.Sprintf(":%d", l.pos.Index)
	}
	if ms, err := strconv.ParseInt(props[reconsume.PropertyDeadLetterTime], 10, 64); err == nil && ms > 0 {
		if died := time.UnixMilli(ms); died.Year() <= 9999 { // JSON has no later time
			l.Died = died
		}
	}
	if msg.EventTime().UnixMilli() != 0 { // upstream returns 1970 if the message has none
		l.EventTime = msg.EventTime()
	}
	if n, err := strconv.Atoi(props[PropertyReplayCount]); err == nil {
		l.Replays = max(n, 0)
	}
	switch v := msg.SchemaVersion(); {
	case len(v) == 8:
		l.Schema = strconv.FormatInt(int64(binary.BigEndian.Uint64(v)), 10)
	case len(v) > 0:
		l.Schema = "unknown"
	}
	if l.Encrypted {
		l.chunked = false // upstream returns each chunk as a message
	}
	return l
}

// setOrigin sets Origin, OriginID and Subscription as the writer of the letter meant them. ORIGIN_TOPIC and
// DEAD_LETTER_TIME always describe this letter. REAL_TOPIC and REAL_SUBSCRIPTION may describe an earlier topic and its
// consumer, if an application forwarded the message with all properties. A writer that sets ORIGIN_PUBLISH_TIME has
// removed the properties of earlier consumers. If ORIGIN_TOPIC is a retry topic, only REAL_TOPIC names the topic before
// the retry topic.
func (l *Letter) setOrigin(dlq string) {
	props := l.Properties
	real := topicname.Base(props[pulsar.SysPropertyRealTopic])
	own := topicname.Base(props[reconsume.PropertyOriginTopic])
	subscription := props[reconsume.PropertyRealSubscription]
	retried := strings.HasSuffix(own, pulsar.RetryTopicSuffix) ||
		local(dlq) == local(real)+"-"+subscription+pulsar.DlqTopicSuffix
	mixed := props[reconsume.PropertyDeadLetterTime] != "" && props[publishing.OriginPublishTime] == ""
	if real == "" || own != "" && own != real && mixed && !retried {
		l.Origin = own
	} else {
		l.Origin, l.Subscription = real, subscription
		l.OriginID = cmp.Or(props[pulsar.PropertyOriginMessageID], props[pulsar.SysPropertyOriginMessageID])
	}
	if l.Subscription == "" && l.Origin != "" { // the default name of a dead letter topic contains the subscription
		rest, follows := strings.CutPrefix(local(dlq), local(l.Origin)+"-")
		if name, ends := strings.CutSuffix(rest, pulsar.DlqTopicSuffix); follows && ends {
			l.Subscription = name
		}
	}
}

// local returns a topic's name without its namespace.
func local(topic string) string { return topic[strings.LastIndex(topic, "/")+1:] }

// weight returns the approximate size of a letter in bytes.
func (l *Letter) weight() int {
	n := l.Size + len(l.Key) + len(l.OrderingKey)
	for name, value := range l.Properties {
		n += len(name) + len(value)
	}
	return n
}

// first returns at most n bytes of text, as valid UTF-8, since any publisher may have written it.
func first(n int, text string) string { return strings.ToValidUTF8(text[:min(n, len(text))], "") }

// message returns the message that a replay publishes. It has everything that the sender set, but not the properties of
// the failure.
func (l *Letter) message(run string) *pulsar.ProducerMessage {
	props := maps.Clone(l.Properties)
	if props == nil {
		props = map[string]string{}
	}
	maps.DeleteFunc(props, func(name, _ string) bool {
		switch name {
		case reconsume.PropertyRedeliveryCount, reconsume.PropertyDeadLetterTime, reconsume.PropertyDelayLevel,
			publishing.NackCount,
			// the message's age and attempts count from zero again
			pulsar.SysPropertyDelayTime, publishing.AttemptCount, publishing.OriginPublishTime:
			return true
		}
		return strings.HasPrefix(name, exceptionPrefix)
	})
	if real := props[pulsar.SysPropertyRealTopic]; l.Origin != "" && topicname.Base(real) != l.Origin {
		// These properties may be of an earlier topic, and a consumer of the retry topic would use them.
		delete(props, reconsume.PropertyRealSubscription)
		delete(props, pulsar.PropertyOriginMessageID)
		delete(props, pulsar.SysPropertyOriginMessageID)
		props[pulsar.SysPropertyRealTopic] = l.Origin
		if l.Subscription != "" {
			props[reconsume.PropertyRealSubscription] = l.Subscription
		}
	}
	props[pulsar.SysPropertyReconsumeTimes] = "0"
	props[PropertyReplayCount] = strconv.Itoa(l.Replays + 1)
	props[PropertyReplayRun] = run
	props[PropertyReplayTopic] = l.to
	m := l.original()
	m.Properties = props
	return m
}

// edited returns the letter with the payload of e, or the letter itself if e is nil.
func (l *Letter) edited(e *Edit) *Letter {
	if e == nil {
		return l
	}
	x := *l
	x.Payload, x.Size, x.Null = e.Payload, len(e.Payload), false
	x.Properties = maps.Clone(l.Properties)
	put(&x.Properties, PropertyEditedBy, e.By)
	put(&x.Properties, PropertyEditedTime, strconv.FormatInt(time.Now().UnixMilli(), 10))
	return &x
}

// original returns a message with the unchanged content of the letter.
func (l *Letter) original() *pulsar.ProducerMessage {
	m := &pulsar.ProducerMessage{Key: l.Key, OrderingKey: l.OrderingKey, EventTime: l.EventTime,
		Properties: maps.Clone(l.Properties)}
	if !l.Null {
		m.Payload = append([]byte{}, l.Payload...) // nil would be a null value
	}
	return m
}

// isUTF8 reports whether a letter's key and properties are valid UTF-8, so that JSON can represent them.
func (l *Letter) isUTF8() bool {
	ok := utf8.ValidString(l.Key) && utf8.ValidString(l.OrderingKey)
	for name, value := range l.Properties {
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	return ok
}

// hasID reports whether id is the letter's ID, or that of its batch (an ID without an index). Clients write the
// partition -1 for a topic without partitions.
func (l *Letter) hasID(id string) bool {
	if parts := strings.Split(id, ":"); len(parts) > 2 && parts[2] == "-1" {
		parts[2] = "0"
		id = strings.Join(parts, ":")
	}
	return strings.Contains(id, ":") && strings.HasPrefix(l.ID+":", id+":")
}

// Filter chooses letters. A letter must match every field that is set. The zero Filter matches every letter.
type Filter struct {
	Groups []string `json:"groups,omitempty"` // IDs of groups; the letter is in one of them
	// IDs of letters; without an index, an ID chooses a whole batch
	IDs        []string          `json:"ids,omitempty"`
	Keys       []string          `json:"keys,omitempty"`       // the letter's key is one of them
	Properties map[string]string `json:"properties,omitempty"` // properties that the letter has
	After      time.Time         `json:"after,omitzero"`       // the letter died at this time or later
	Before     time.Time         `json:"before,omitzero"`      // the letter died before this time
}

// Match reports whether the filter chooses l.
func (f Filter) Match(l *Letter) bool {
	if !f.After.IsZero() && l.Died.Before(f.After) || !f.Before.IsZero() && !l.Died.Before(f.Before) {
		return false
	}
	if len(f.IDs) > 0 && !slices.ContainsFunc(f.IDs, l.hasID) || len(f.Keys) > 0 && !slices.Contains(f.Keys, l.Key) {
		return false
	}
	for name, want := range f.Properties {
		if value, ok := l.Properties[name]; !ok || value != want {
			return false
		}
	}
	if len(f.Groups) == 0 {
		return true
	}
	return slices.Contains(f.Groups, l.Group())
}
