package doctor

import (
	"fmt"
	"slices"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var idleConsumer = Check{
	Name: "idle-consumer", About: "Consumers", Needs: AdminAPI,
	Asks: "Does every consumer take messages while there are some?",
	Why: "a consumer without permits takes nothing, because its handlers hang, it is paused, or the application " +
		"does not receive",
	Remedy: "look for hanging handlers, `Pause`, a full memory limit; then restart the process",
	look: func(v *visit) verdict {
		return v.stalled(func(sub subscription, c consumer) bool {
			return c.AvailablePermits <= 0 && !c.BlockedConsumerOnUnackedMsgs
		},
			Warning, "consumer %s of %s takes nothing: %d permits, %d unacknowledged, %d in the backlog")
	},
}

// stalled finds suspicious consumers that get nothing for the time Patience although there are messages for them.
func (v *visit) stalled(suspicious func(subscription, consumer) bool, status Status, format string) verdict {
	topics, err := v.existing(v.Topic, v.retry())
	if err != nil {
		return unknown(err)
	}
	found := verdict{}
	for _, topic := range topics {
		first, err := v.stats(topic)
		if err != nil {
			return unknown(err)
		}
		suspects := map[string]consumer{} // by partition and name
		for name, part := range first.parts(topic) {
			sub := part.Subscriptions[v.Subscription]
			for _, c := range sub.Consumers {
				found = worse(found, ok("all consumers take messages"))
				if sub.sendable() > 0 && suspicious(sub, c) {
					suspects[name+" "+c.ConsumerName] = c
				}
			}
		}
		if len(suspects) == 0 {
			continue
		}
		second, err := v.statsAgain(topic)
		if err != nil {
			return unknown(err)
		}
		for name, part := range second.parts(topic) {
			sub := part.Subscriptions[v.Subscription]
			for _, c := range sub.Consumers {
				before, suspect := suspects[name+" "+c.ConsumerName]
				if suspect && c.MsgOutCounter == before.MsgOutCounter && sub.sendable() > 0 && suspicious(sub, c) {
					switch sent, err := v.allSent(name); {
					case err != nil:
						found = worse(found, unknown(err))
					case !sent:
						found = worse(found, verdict{status,
							fmt.Sprintf(format, c.ConsumerName, local(name), c.AvailablePermits, c.UnackedMessages,
								sub.MsgBacklog)})
					}
				}
			}
		}
	}
	return found
}

// allSent reports whether the broker has sent all messages of a topic or a partition at least once. On Exclusive and
// Failover the broker does not count messages that are sent and unacknowledged: only its read position shows them.
func (v *visit) allSent(topic string) (bool, error) {
	if v.delays() {
		return false, nil // on Shared and Key_Shared, sendable counts only messages that were not sent
	}
	var inside struct {
		LastConfirmedEntry string
		Cursors            map[string]struct{ ReadPosition string }
	}
	if err := v.get(admin.Topic(topic)+"/internalStats", &inside); err != nil {
		return false, err
	}
	var last, next [2]int64 // ledger and entry
	_, err := fmt.Sscanf(inside.LastConfirmedEntry+" "+inside.Cursors[admin.CursorName(v.Subscription)].ReadPosition,
		"%d:%d %d:%d", &last[0], &last[1], &next[0], &next[1])
	return slices.Compare(next[:], last[:]) > 0, err
}

// sendable returns how many messages the broker could send now.
func (s subscription) sendable() int { return s.MsgBacklog - s.MsgDelayed - s.UnackedMessages }
