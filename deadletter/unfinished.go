package deadletter

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// UnfinishedError is an ErrUnfinished that describes the earlier, unfinished Replay.
type UnfinishedError struct {
	Run     string    // the replay's id
	Started time.Time // when it began
	// Options are those of the earlier Replay: a Replay with the same options continues it. Fields that had their
	// defaults are zero, and Encryption has only the names of its keys.
	Options ReplayOptions
	Edited  bool // the earlier Replay had an Edit: to continue it, set Options.Edit too

	options json.RawMessage
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%v: run %s of %s has options %s", ErrUnfinished, e.Run, e.Started.Format(time.DateTime),
		e.options)
}

// Unwrap returns ErrUnfinished.
func (e *UnfinishedError) Unwrap() error { return ErrUnfinished }

// unfinished returns the error for a replay whose options differ from those of the run in the journal.
func (t *Topic) unfinished(old *run) error {
	e := &UnfinishedError{Run: old.ID, Started: old.Started, options: old.Options}
	var c chosen
	if err := json.Unmarshal(old.Options, &c); err != nil {
		return e
	}
	e.Edited = c.Edit != ""
	e.Options = ReplayOptions{ToOrigin: c.To == "origin", Topic: c.Topic, Routing: c.Routing, Filter: c.Filter,
		Max: c.Max, MaxReplays: c.MaxReplays, Namespaces: c.Namespaces}
	if c.Topic == t.retryTopic() {
		e.Options.Topic = ""
	}
	if c.MaxReplays == defaultMaxReplays {
		e.Options.MaxReplays = 0
	}
	if len(c.Keys) > 0 {
		e.Options.Encryption = &pulsar.ProducerEncryptionInfo{Keys: c.Keys}
	}
	return e
}

// ImportError is the error of an Import that stopped before its last line.
type ImportError struct {
	Lines int   // how many lines are done, from the first: ImportOptions.Skip of an Import that goes on from here
	Err   error // why the Import stopped
}

func (e *ImportError) Error() string {
	return fmt.Sprintf("%v; the first %d lines are done", e.Err, e.Lines)
}

// Unwrap returns Err.
func (e *ImportError) Unwrap() error { return e.Err }
