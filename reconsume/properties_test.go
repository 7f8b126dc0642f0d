package reconsume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestExceptionTypeIsTheFirstExportedTypeOfTheCause(t *testing.T) {
	for want, reason := range map[string]error{
		"*errors.errorString":           fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.New("c"))),
		"*fs.PathError":                 fmt.Errorf("a: %w", &fs.PathError{Err: errBroker}),
		"syscall.Errno":                 errors.Join(fmt.Errorf("a: %w", syscall.ENOENT), errBroker),
		"context.deadlineExceededError": fmt.Errorf("%w, %w", context.DeadlineExceeded, &fs.PathError{}),
		"*strconv.NumError":             reconsume.DeadLetterTo("orders-sub-DLQ", &strconv.NumError{Err: strconv.ErrRange}),
	} {
		run(t, reconsume.Options{OmitCause: true},
			func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
				require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}}, reason))
				props := c.sent[deadLetters][0].Properties
				assert.Equal(t, want, props["EXCEPTION_TYPE"])
				assert.NotContains(t, props, "EXCEPTION_MESSAGE")
			})
	}
}

// partitionAlone is a message of a consumer that has subscribed to one partition by its name: upstream's IDs then name
// partition 0.
type partitionAlone struct{ message }

func (partitionAlone) ID() pulsar.MessageID { return pulsar.NewMessageID(3, 4, 0, 0) }

// A replay needs the partition.
func TestOriginIDNamesThePartitionOfTheMessage(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		require.NoError(t, r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: partitionAlone{}}, 0, nil))
		for _, name := range []string{pulsar.SysPropertyOriginMessageID, pulsar.PropertyOriginMessageID} {
			assert.Equal(t, message{}.ID().String(), c.sent[retries][0].Properties[name], "the partition is wrong")
		}
	})
}

// broken is an error whose methods panic if it is nil.
type broken struct{ error }

func (b *broken) Unwrap() error { return b.error }

// The methods of a reason that is a nil pointer panic.
func TestLetterWhoseReasonPanicsIsPublished(t *testing.T) {
	for name, c := range map[string]struct {
		reason     error
		kind, text string
	}{
		"exported":    {(*fs.PathError)(nil), "*fs.PathError", "*fs.PathError, whose Error panics"},
		"unexported":  {(*broken)(nil), "*reconsume_test.broken", "*reconsume_test.broken, whose Error panics"},
		"wrapped":     {fmt.Errorf("a: %w", (*broken)(nil)), "*reconsume_test.broken", "a: <nil>"},
		"joined":      {errors.Join((*broken)(nil)), "*reconsume_test.broken", "*errors.joinError, whose Error panics"},
		"of no error": {&broken{}, "*reconsume_test.broken", "*reconsume_test.broken, whose Error panics"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
				require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}},
					c.reason))
				props := cl.sent[deadLetters][0].Properties
				assert.Equal(t, c.kind, props["EXCEPTION_TYPE"])
				assert.Equal(t, c.text, props["EXCEPTION_MESSAGE"])
				assert.Equal(t, 1, acks.acked)
			})
		})
	}
}

// The text of an error may quote a payload, and so contain any bytes. A property must be valid UTF-8, or the letter
// could not be written to a JSON file.
func TestReasonBecomesValidUTF8(t *testing.T) {
	long := strings.Repeat("\xff漢", 1000)
	for text, want := range map[string]string{
		"no order: \xff\xfe, 漢": "no order: , 漢",
		long:                    strings.Repeat("漢", 256), // of the first KiB
	} {
		run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
			require.NoError(t, r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{}},
				errors.New(text)))
			assert.Equal(t, want, cl.sent[deadLetters][0].Properties["EXCEPTION_MESSAGE"])
		})
	}
}

// The cause comes from the caller, from the custom properties, or from an earlier retry.
func TestRetriesAndDeadLettersCarryTheLatestCause(t *testing.T) {
	custom := map[string]string{"EXCEPTION_MESSAGE": "custom", "EXCEPTION_TYPE": "java.io.IOException"}
	earlier := map[string]string{"EXCEPTION_MESSAGE": "earlier", "EXCEPTION_TYPE": "*a.Error"}
	because := reconsume.WithCause(&fs.PathError{Op: "open", Path: "x", Err: errBroker})
	for name, c := range map[string]struct {
		own, custom map[string]string
		options     []reconsume.LaterOption
		omit        bool
		message     string
		kind        string
	}{
		"none": {},
		"a cause": {options: []reconsume.LaterOption{because}, message: "open x: broker says no",
			kind: "*fs.PathError"},
		"a cause, omitted": {own: earlier, options: []reconsume.LaterOption{because}, omit: true,
			kind: "*fs.PathError"},
		"custom": {own: earlier, custom: custom, message: "custom", kind: "java.io.IOException"},
		"custom without type": {own: earlier, custom: map[string]string{"EXCEPTION_MESSAGE": "custom"},
			message: "custom"},
		"a cause and custom": {custom: custom, options: []reconsume.LaterOption{because},
			message: "open x: broker says no", kind: "*fs.PathError"},
		"of an earlier retry": {own: earlier, message: "earlier", kind: "*a.Error"},
		"earlier, and a cause": {own: earlier, options: []reconsume.LaterOption{because},
			message: "open x: broker says no", kind: "*fs.PathError"},
	} {
		for topic, times := range map[string]string{retries: "0", deadLetters: "16"} {
			t.Run(name+" "+topic, func(t *testing.T) {
				run(t, reconsume.Options{OmitCause: c.omit},
					func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
						own := maps.Clone(c.own)
						if own == nil {
							own = map[string]string{}
						}
						own["RECONSUMETIMES"] = times
						cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: own}}
						require.NoError(t, r.LaterAfter(bg, cm, 0, c.custom, c.options...))
						props := cl.sent[topic][0].Properties
						text, kind := c.message, c.kind
						if name == "none" && topic == deadLetters {
							text, kind = "reconsumed 16 times", "*errors.errorString"
						}
						assert.Equal(t, text, props["EXCEPTION_MESSAGE"])
						assert.Equal(t, kind, props["EXCEPTION_TYPE"])
					})
			})
		}
	}
}
