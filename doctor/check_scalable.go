package doctor

import (
	"fmt"
	"strings"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var scalable = Check{
	Name: "scalable", About: "Topic and subscription", Needs: AdminAPI,
	Asks: "Is the topic an ordinary one, not a scalable topic of Pulsar 5?",
	Why: "pulsar-client-go cannot read scalable topics (`topic://`). After a migration its consumers connect, " +
		"but get no new messages",
	Remedy: "use a client for Pulsar 5, or do not migrate the topic",
	look: func(v *visit) verdict {
		if strings.HasPrefix(v.Topic, scalableDomain) {
			return problem("%s is a scalable topic", v.Topic)
		}
		said, major := "", 0
		if err := v.get("brokers/version", &said); err != nil {
			return unknown(err)
		}
		_, _ = fmt.Sscanf(said, "%d", &major)
		if major < 5 {
			return verdict{}
		}
		path := strings.TrimPrefix(admin.Topic(v.Topic), "persistent/")
		var layout struct {
			Segments map[string]struct{ Legacy bool }
		}
		err := v.get("scalable/"+path, &layout)
		switch {
		case admin.NotFound(err):
			if n := v.instances(); n > 0 {
				return ok("an ordinary topic; the broker does not migrate it while it has consumers (now %d)", n)
			}
			return ok("an ordinary topic")
		case err != nil:
			return unknown(err)
		}
		for _, segment := range layout.Segments {
			if segment.Legacy {
				return problem("the topic was migrated to the scalable topic %s%s: new messages do not come here",
					scalableDomain, path)
			}
		}
		return problem("%s%s is a scalable topic", scalableDomain, path)
	},
}

const scalableDomain = "topic://"
