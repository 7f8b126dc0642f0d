package random

import (
	"math/rand/v2"

	"github.com/apache/pulsar-client-go/pulsar"
)

// randomPairs has the settings that only wide runs draw, so that every pair of features occurs. It is zero in narrow
// runs.
type randomPairs struct {
	Wide      bool
	Mix       bool // both Receive and Chan
	Buffer    int  // of the application's MessageChannel
	Every     int  // every Every-th message is acknowledged cumulatively; if it is 0, messages are settled in random ways
	Careful   bool // no cumulative acknowledgement covers a message that will come again
	Faultless bool // no message fails
	Wrap      wrapping
	Scene     scene
	Pauses    bool // the application pauses its consumers now and then
}

// widen draws the pairs from separate random numbers, so that they do not change the runs of narrow seeds.
func (c *randomConfig) widen() {
	rng := rand.New(rand.NewPCG(c.base(), 77))
	often := func(percent int) bool { return rng.IntN(100) < percent }
	c.Wide = true
	rewinds := c.Kind == pulsar.Exclusive || c.Kind == pulsar.Failover
	if mayChan := !c.ZeroQueue; often(60) && mayChan {
		c.Chan = true
	}
	c.Mix = often(40) && c.Chan
	c.Channel = often(40) && c.Chan
	if c.Channel {
		c.Buffer = []int{0, 1, 10, 200}[rng.IntN(4)]
	}
	c.Faultless = often(30)
	if often(70) && rewinds {
		c.Cumulative, c.Workers = true, 1
		c.Every = []int{0, 1, 1, 3, 20}[rng.IntN(5)]
		c.Careful = often(50)
	}
	if often(50) {
		c.Wrap = wrapping(rng.IntN(int(wrappings)))
	}
	c.set([]scene{sceneOrdinary, sceneOrdinary, sceneOrdinary, sceneOrdinary, sceneOrdinary, sceneOrdinary,
		sceneAway, sceneAway, sceneBusy, sceneJoins}[rng.IntN(10)], rng)
	if often(10) && c.Scene == sceneOrdinary {
		c.set(sceneVanishes, rng)
	}
	c.Pauses = often(25) && c.Scene != sceneJoins
}

// MayTimeOutUnseen reports whether a message may be in the application's channel twice, because its ack timeout ends
// while the message is in the channel.
func (c *randomConfig) MayTimeOutUnseen() bool { return c.Buffer > 0 && c.Timeout > 0 }

// Ordered reports whether the application gets the messages of a partition in order.
func (c *randomConfig) Ordered() bool {
	return (c.Kind == pulsar.Exclusive || c.Kind == pulsar.Failover) && !c.Multiple() && c.Workers == 1
}
