package doctor

import (
	"strings"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var schemas = Check{
	Name: "schemas", About: "Dead letters", Needs: AdminAPI,
	Asks:   "Do the retry and the dead letter topic have the topic's schema, or none?",
	Why:    "otherwise retries and dead letters are published without a schema, or refused",
	Remedy: "`pulsar-admin schemas delete TOPIC` for the topic that differs, if it is empty; else another topic",
	look: besideOwn(func(v *visit, topics []string) verdict {
		own, err := v.schema(v.Topic)
		if err != nil {
			return unknown(err)
		}
		for _, topic := range topics {
			other, err := v.schema(topic)
			if err != nil {
				return unknown(err)
			}
			if other != "" && other != own {
				return problem("%s has %s, the topic has %s", local(topic), other,
					map[bool]string{true: "none", false: own}[own == ""])
			}
		}
		if own == "" {
			return ok("no schema")
		}
		return ok("%s", own)
	}),
}

// schema returns the type of a topic's schema; "" if it has none.
func (v *visit) schema(topic string) (string, error) {
	var s struct{ Type string }
	err := v.get("schemas/"+strings.TrimPrefix(admin.Topic(topic), "persistent/")+"/schema", &s)
	if admin.NotFound(err) {
		err = nil
	}
	return s.Type, err
}
