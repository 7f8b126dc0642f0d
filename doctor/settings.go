package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// namespace has the policies of a namespace. A setting that the namespace does not have is nil.
type namespace struct {
	TTL       *int             `json:"message_ttl_in_seconds"`
	Retention *retention       `json:"retention_policies"`
	Quotas    map[string]quota `json:"backlog_quota_map"`
	Delayed   *delayed         `json:"delayed_delivery_policies"`
	Consumer  *int             `json:"max_unacked_messages_per_consumer"`
	Total     *int             `json:"max_unacked_messages_per_subscription"`
	Dedup     *bool            `json:"deduplicationEnabled"`
	Inactive  *inactive        `json:"inactive_topic_policies"`
	Expiry    *int             `json:"subscription_expiration_time_minutes"`
	Auto      *struct {
		Allow bool `json:"allowAutoTopicCreation"`
	} `json:"autoTopicCreationOverride"`
	AutoSubscription *struct {
		Allow bool `json:"allowAutoSubscriptionCreation"`
	} `json:"autoSubscriptionCreationOverride"`
}

type retention struct {
	Minutes   int `json:"retentionTimeInMinutes"`
	Megabytes int `json:"retentionSizeInMB"`
}

type quota struct {
	LimitSize int64
	LimitTime int64 // seconds
	Policy    string
}

type delayed struct {
	TickTime int64 // milliseconds
	Active   bool
	MaxDelay int64 `json:"maxDeliveryDelayInMillis"` // 0 for no limit
}

type inactive struct {
	Mode    string `json:"inactiveTopicDeleteMode"`
	Deletes bool   `json:"deleteWhileInactive"`
}

// errNoNamespace says that there is no such namespace, or no such tenant.
var errNoNamespace = errors.New("there is no namespace")

func (v *visit) namespace(topic string) (n namespace, err error) {
	err = v.get("namespaces/"+namespaceOf(topic), &n)
	var refused *admin.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.HasReason() {
		// the broker has answered, and not a proxy in between
		err = fmt.Errorf("%w %s", errNoNamespace, namespaceOf(topic))
	}
	return n, err
}

// broker returns the broker's configuration, which only a super user may read.
func (v *visit) broker() (map[string]string, error) {
	conf := map[string]string{}
	return conf, v.get("brokers/configuration/runtime", &conf)
}

// setting describes where to read a setting of a topic, of its namespace and of the broker.
type setting[T any] struct {
	path   string                             // of the topic's setting; "" if a topic cannot have one
	policy string                             // name of the topic's setting in commands of pulsar-admin topicPolicies
	of     func(namespace) *T                 // returns the namespace's setting; nil if it has none
	broker func(conf map[string]string) (v T) // returns the broker's setting
}

// ofTopic returns the setting in force for a topic, which need not exist.
func (s setting[T]) ofTopic(v *visit, topic string) (value T, err error) {
	v.read = append(v.read, topicPolicy{topic, s.path, s.policy})
	if s.path != "" {
		var found *T
		if err = v.get(admin.Topic(topic)+"/"+s.path+"?applied=true", &found); err == nil && found != nil {
			return *found, nil
		}
		if err != nil && !admin.NotFound(err) && !notAllowed(err) {
			return value, err
		}
	}
	n, err := v.namespace(topic)
	if err != nil {
		return value, err
	}
	if found := s.of(n); found != nil {
		return *found, nil
	}
	conf, err := v.broker()
	if err != nil {
		return value, err
	}
	return s.broker(conf), nil
}

// topicPolicy is a setting of a topic. path and name are "" if a topic cannot have the setting itself.
type topicPolicy struct{ topic, path, name string }

// isSet reports whether the topic itself has the setting, so that its namespace's does not apply.
func (p topicPolicy) isSet(v *visit) bool {
	var own any
	if p.path == "" || v.get(admin.Topic(p.topic)+"/"+p.path, &own) != nil || own == nil {
		return false
	}
	quotas, is := own.(map[string]any)
	return !is || len(quotas) > 0
}

func notAllowed(err error) bool {
	return admin.HasStatus(err, http.StatusMethodNotAllowed) || admin.HasStatus(err, http.StatusNoContent)
}

// intOf returns the number of a key; 0 if the key is missing or has no number.
func intOf(conf map[string]string, key string) int {
	n, _ := strconv.Atoi(conf[key])
	return n
}

// The settings that checks read.
var (
	timeToLive = setting[int]{"messageTTL", "message-ttl", func(n namespace) *int { return n.TTL },
		func(c map[string]string) int { return intOf(c, "ttlDurationDefaultInSeconds") }}
	retained = setting[retention]{"retention", "retention", func(n namespace) *retention { return n.Retention },
		func(c map[string]string) retention {
			return retention{intOf(c, "defaultRetentionTimeInMinutes"), intOf(c, "defaultRetentionSizeInMB")}
		}}
	quotas = setting[map[string]quota]{"backlogQuotaMap", "backlog-quota",
		func(n namespace) *map[string]quota {
			if len(n.Quotas) == 0 {
				return nil
			}
			return &n.Quotas
		}, defaultQuota}
	delayedDelivery = setting[delayed]{"delayedDelivery", "delayed-delivery",
		func(n namespace) *delayed { return n.Delayed },
		func(c map[string]string) delayed {
			return delayed{int64(intOf(c, "delayedDeliveryTickTimeMillis")), c["delayedDeliveryEnabled"] == "true",
				int64(intOf(c, "delayedDeliveryMaxDelayInMillis"))}
		}}
	maxUnackedOfConsumer = setting[int]{"maxUnackedMessagesOnConsumer", "max-unacked-messages-per-consumer",
		func(n namespace) *int { return n.Consumer },
		func(c map[string]string) int { return intOf(c, "maxUnackedMessagesPerConsumer") }}
	maxUnackedOfSubscription = setting[int]{"maxUnackedMessagesOnSubscription", "max-unacked-messages-per-subscription",
		func(n namespace) *int { return n.Total },
		func(c map[string]string) int { return intOf(c, "maxUnackedMessagesPerSubscription") }}
	deduplication = setting[bool]{"deduplicationEnabled", "deduplication",
		func(n namespace) *bool { return n.Dedup },
		func(c map[string]string) bool { return c["brokerDeduplicationEnabled"] == "true" }}
	inactivity = setting[inactive]{"inactiveTopicPolicies", "inactive-topic-policies",
		func(n namespace) *inactive { return n.Inactive },
		func(c map[string]string) inactive {
			return inactive{c["brokerDeleteInactiveTopicsMode"], c["brokerDeleteInactiveTopicsEnabled"] == "true"}
		}}
	expiration = setting[int]{"", "", func(n namespace) *int { return n.Expiry },
		func(c map[string]string) int { return intOf(c, "subscriptionExpirationTimeMinutes") }}
	autoTopics = setting[bool]{"", "", func(n namespace) *bool {
		if n.Auto == nil {
			return nil
		}
		return &n.Auto.Allow
	}, func(c map[string]string) bool { return c["allowAutoTopicCreation"] == "true" }}
	autoSubscriptions = setting[bool]{"", "", func(n namespace) *bool {
		if n.AutoSubscription == nil {
			return nil
		}
		return &n.AutoSubscription.Allow
	}, func(c map[string]string) bool { return c["allowAutoSubscriptionCreation"] == "true" }}
)

// defaultQuota returns the broker's quota, whose limits of size and of time both apply.
func defaultQuota(conf map[string]string) map[string]quota {
	q := quota{int64(intOf(conf, "backlogQuotaDefaultLimitBytes")),
		int64(intOf(conf, "backlogQuotaDefaultLimitSecond")), conf["backlogQuotaDefaultRetentionPolicy"]}
	if gb, _ := strconv.ParseFloat(conf["backlogQuotaDefaultLimitGB"], 64); gb > 0 { // the older name comes first
		q.LimitSize = int64(gb * (1 << 30))
	}
	return map[string]quota{"default": q}
}

// limited reports whether a quota has a limit, and returns its limits in words.
func (q quota) limited() (said string, limited bool) {
	var limits []string
	if q.LimitSize > 0 {
		limits = append(limits, strconv.FormatInt(q.LimitSize, 10)+" bytes")
	}
	if q.LimitTime > 0 {
		limits = append(limits, strconv.FormatInt(q.LimitTime, 10)+"s")
	}
	return strings.Join(limits, ", ") + " with " + q.Policy, len(limits) > 0
}
