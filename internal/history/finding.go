package history

import (
	"encoding/json"
	"time"
)

// Fault is a kind of finding.
type Fault string

// What a Checker finds.
const (
	Lost       Fault = "lost"         // neither acknowledged nor a dead letter, and the broker has nothing left
	Stuck      Fault = "stuck"        // was due for Rules.Patience, and did not come
	Early      Fault = "early"        // delivered before its delay was over
	Duplicated Fault = "duplicated"   // delivered after it was acknowledged or a dead letter
	Disorder   Fault = "out of order" // first delivered after a later message of its key
	Miscounted Fault = "miscounted"   // the redelivery count does not fit the failures
	Letters    Fault = "letters"      // two dead letters, or one of an acknowledged message
)

// Faults are in the order of docs/history.md.
var Faults = []Fault{Lost, Stuck, Early, Duplicated, Disorder, Miscounted, Letters}

// Finding is a broken promise with the fewest lines that show it.
type Finding struct {
	Fault   Fault
	Message string
	Text    string
	Lines   []*Line
}

// MarshalJSON writes each line with its place.
func (f Finding) MarshalJSON() ([]byte, error) {
	type placed struct {
		File  string `json:"file"`
		Line  int    `json:"line"`
		Event Event  `json:"event"`
	}
	lines := make([]placed, len(f.Lines))
	for i, l := range f.Lines {
		lines[i] = placed{l.File, l.Number, l.Event}
	}
	return json.Marshal(struct {
		Fault   Fault    `json:"fault"`
		Message string   `json:"message"`
		Text    string   `json:"text"`
		Lines   []placed `json:"lines"`
	}{f.Fault, f.Message, f.Text, lines})
}

// Summary counts the events of a history.
type Summary struct {
	Messages   int `json:"messages"`
	Deliveries int `json:"deliveries"`
	Failures   int `json:"failures"` // nacked, snoozed and reconsumed
	Settled    int `json:"settled"`  // messages that are acknowledged or dead letters
	Letters    int `json:"letters"`
	Doubles    int `json:"doubles"` // deliveries of settled messages, excused ones too
	// failures that the next count does not have, since their consumer was gone
	Forgotten int `json:"forgotten"`
	// messages that are not settled, and not lost as far as the history goes
	Unfinished int `json:"unfinished"`
	Faults     int `json:"faults"` // lost connections and killed consumers
	// wait for a message that was due, or from the last fault if that was later
	Longest time.Duration `json:"-"`
}

// Rules are the promises of the client that a Checker may rely on.
type Rules struct {
	// Window is how long before a lost connection or a kill an acknowledgement may be lost, and a copy may be on its
	// way to another consumer. A link may be dead for some keep-alive intervals before the client notices. 0 is
	// DefaultWindow.
	Window time.Duration

	// Patience is how long a message that is due may wait for a consumer. 0 is DefaultPatience.
	Patience time.Duration

	// Durable says that counts and delays outlive a consumer, as with redelivery.WithAttemptLog. Without it, they may
	// start again after a fault.
	Durable bool

	// Serial says that a message of a key is handled after all that were published before it.
	Serial bool

	// MaxDeliveries is how often a message may be delivered; 0 for no limit.
	MaxDeliveries int
}

// Defaults of Rules: pulsar-client-go notices a dead link after two or three keep-alive intervals of 30 s, and waits up
// to a minute before it connects again.
const (
	DefaultWindow   = 2 * time.Minute
	DefaultPatience = 75 * time.Second
)
