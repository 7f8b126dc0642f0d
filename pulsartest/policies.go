package pulsartest

import (
	"encoding/json"
	"net/http"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// limits are the policies that a topic may have.
type limits struct{ consumer, subscription policy } // unacknowledged messages

// policy is a number that may be absent.
type policy struct {
	set   bool
	value int
}

func (p policy) or(fallback int) int {
	if p.set {
		return p.value
	}
	return fallback
}

// policyHandlers serves a topic's policies.
func (s *Server) policyHandlers(topic string, handle handlers) {
	for name, of := range map[string]func(*limits) *policy{
		"maxUnackedMessagesOnConsumer":     func(l *limits) *policy { return &l.consumer },
		"maxUnackedMessagesOnSubscription": func(l *limits) *policy { return &l.subscription },
	} {
		change := func(f func(w http.ResponseWriter, r *http.Request, p *policy) error) func(http.ResponseWriter,
			*http.Request) error {
			return func(w http.ResponseWriter, r *http.Request) error {
				n, topics, err := s.existing(r)
				if err != nil {
					return err
				}
				all := s.limits[n.base()]
				if err := f(w, r, of(&all)); err != nil {
					return err
				}
				s.limits[n.base()] = all
				for _, t := range topics {
					for _, sub := range t.subs {
						for _, c := range sub.consumers {
							c.add(0)
						}
						sub.dispatch()
					}
				}
				return nil
			}
		}
		handle("GET "+topic+"/"+name, change(func(w http.ResponseWriter, _ *http.Request, p *policy) error {
			if p.set {
				reply(w, http.StatusOK, p.value)
			} else {
				reply(w, http.StatusNoContent, nil)
			}
			return nil
		}))
		handle("POST "+topic+"/"+name, change(func(w http.ResponseWriter, r *http.Request, p *policy) error {
			var value int
			if err := json.NewDecoder(r.Body).Decode(&value); err != nil || value < 0 {
				return failf(wire.NotAllowedError, "%s has to be a number of 0 or more", name)
			}
			*p = policy{true, value}
			reply(w, http.StatusNoContent, nil)
			return nil
		}))
		handle("DELETE "+topic+"/"+name, change(func(w http.ResponseWriter, _ *http.Request, p *policy) error {
			*p = policy{}
			reply(w, http.StatusNoContent, nil)
			return nil
		}))
	}
}
