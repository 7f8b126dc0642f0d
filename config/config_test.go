package config

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

const (
	s = time.Second
	m = time.Minute
)

func ptr[T any](v T) *T { return &v }

func TestLoadReadsPoliciesAndConsumers(t *testing.T) {
	c, err := Load("testdata/redelivery.yaml")
	require.NoError(t, err)
	java := backoff.Exponential{Min: s, Max: m, Multiplier: 3}
	gentle := backoff.Exponential{Min: s, Max: 10 * m, Multiplier: 2}
	var none time.Duration
	assert.Equal(t, &Config{
		map[string]backoff.RedeliveryBackoff{
			"gentle":   gentle,
			"ladder":   backoff.DelayLevels{s, 5 * s, 24 * 60 * m},
			"minute":   backoff.Fixed(m),
			"spread":   backoff.WithJitter(backoff.Fixed(m), 0.5),
			"defaults": backoff.Exponential{},
			"java":     java,
			"pip106":   backoff.Exponential{Min: s, Max: m},
			"pip130":   backoff.Exponential{Min: 10 * s}, // Java's default
		},
		map[string]Consumer{
			"billing": {NackRedeliveryBackoff: gentle, AckTimeout: 10 * s, AckTimeoutRedeliveryBackoff: java,
				ReconsumeBackoff: backoff.DelayLevels{s, 5 * s, 24 * 60 * m}, NackRetryTopic: 10 * m, MaxDeliveries: 5,
				MaxReconsumes: 8,
				RetryTopic:    "orders-retry", DeadLetterTopic: "orders-dead", InitialSubscriptionName: "inspect",
				OmitCause:   true,
				MemoryLimit: ptr(int64(64 << 20)), RedeliveryFrom: redelivery.FromMemory,
				Resolution: 20 * time.Millisecond},
			"java-too":    {MaxDeliveries: 4, MaxReconsumes: 3, ReconsumeBackoff: java, RetryTopic: "orders-retry"},
			"shipping-eu": {NackRedeliveryDelay: &none},
			"plain":       {},
		},
		map[string]Worker{},
	}, c)
}

func TestExampleFileAndFileInTheDocumentationAreValid(t *testing.T) {
	_, err := Load("../examples/config/redelivery.yaml")
	assert.NoError(t, err)
	source, err := os.ReadFile("config.go")
	require.NoError(t, err)
	var file strings.Builder
	for line := range strings.Lines(string(source)) {
		if text, found := strings.CutPrefix(line, "//\t"); found && !strings.Contains(line, "want") &&
			!strings.Contains(line, "REDELIVERY_") {
			file.WriteString(text)
		}
	}
	c, err := Parse([]byte(file.String()))
	require.NoError(t, err)
	assert.Len(t, c.Policies, 4)
	assert.NotNil(t, c.Consumers["billing"].ReconsumeBackoff)
	assert.NotNil(t, c.Workers["billing"].PauseOnFailureBackoff)
}

func TestParseReadsJSONAliasesAndUnusualValues(t *testing.T) {
	for name, c := range map[string]struct {
		in, policy string
		want       backoff.RedeliveryBackoff
	}{
		"JSON": {"{\n\t\"policies\":{\n\t\t\"p\":{\"type\":\"exponential\",\"min\":\"2s\",\"multiplier\":1.5}\n\t}\n}",
			"p",
			backoff.Exponential{Min: 2 * s, Multiplier: 1.5}},
		"JSON, escaped": {`{"policies": {"a\/b \u00e9": {"type": "fixed", "delay": "1m30s"}}}`, "a/b é",
			backoff.Fixed(m + m/2)},
		"alias of a policy": {"policies: {a: &a {type: fixed, delay: &d 1m}, p: *a, q: {type: fixed, delay: *d}}", "p",
			backoff.Fixed(m)},
		"alias of a delay": {"policies: {a: &a {type: fixed, delay: &d 1m}, p: *a, q: {type: fixed, delay: *d}}", "q",
			backoff.Fixed(m)},
		"longest delay": {"policies: {p: {type: fixed, delay: 2562047h47m16.854s}}", "p",
			backoff.Fixed(math.MaxInt64 / 1_000_000 * 1_000_000)},
		"delay in days": {"policies: {p: {type: fixed, delay: 2d}}", "p", backoff.Fixed(48 * 60 * m)},
		"class with its package": {"policies: {p: {className: org.apache.pulsar.client.api.ExponentialRedeliveryBackoff, " +
			"params: }}", "p", backoff.Exponential{Min: 10 * s}},
		"names that look like a bool and a number": {
			"policies: {no: {type: fixed, delay: 1m}}\nconsumers: {1: {nackRedeliveryBackoff: no}}", "no",
			backoff.Fixed(m)},
		"carriage returns": {"policies:\r\n  p: {type: fixed, delay: 1m}\r\n", "p", backoff.Fixed(m)},
		"byte order mark":  {"\ufeffpolicies: {p: {type: fixed, delay: 1m}}", "p", backoff.Fixed(m)},
	} {
		got, err := Parse([]byte(c.in))
		if assert.NoError(t, err, name) {
			assert.Equal(t, c.want, got.Policies[c.policy], name)
		}
	}
}

func TestCustomPolicyGetsItsParametersAndReportsItsErrors(t *testing.T) {
	var got []map[string]any
	mine := NewPolicy("com.acme.Mine", func(params map[string]any) (backoff.RedeliveryBackoff, error) {
		got = append(got, params)
		if params["fail"] == true {
			return nil, errors.New("mine does not like it")
		}
		return backoff.Fixed(s), nil
	})
	c, err := Parse([]byte(`policies:
  a: {type: com.acme.Mine, unit: 1s, n: 3, f: 0.5, list: [1, x], none: , quoted: "3"}
  b: {className: com.acme.Mine, params: '{"unit": "1s", "deep": {"n": 1}}'}
  c: {className: com.acme.Mine}
`), mine)
	require.NoError(t, err)
	assert.Equal(t, backoff.Fixed(s), c.Policies["b"])
	assert.Equal(t, []map[string]any{
		{"unit": "1s", "n": 3, "f": 0.5, "list": []any{1, "x"}, "none": nil, "quoted": "3"},
		{"unit": "1s", "deep": map[string]any{"n": 1}},
		{},
	}, got)

	_, err = Parse([]byte("policies:\n  a: {type: com.acme.Mine, fail: true}"), mine)
	assert.EqualError(t, err, "line 2: policies.a is wrong: mine does not like it")
	returnNil := func(map[string]any) (backoff.RedeliveryBackoff, error) { return nil, nil }
	_, err = Parse([]byte("policies:\n  a: {type: nothing}"), NewPolicy("nothing", returnNil))
	assert.ErrorContains(t, err, "line 2: policies.a is wrong: backoff: policy is nil")

	for want, policies := range map[string][]Policy{
		`policy "" has no name or no factory`:  {NewPolicy("", returnNil)},
		`policy "a" has no name or no factory`: {NewPolicy("a", nil)},
		`policy "" has no name`:                {{}},
		`policy "fixed" is built in`:           {NewPolicy("fixed", returnNil)},
		`policy "MultiplierRedeliveryBackoff" is built in`: {NewPolicy("MultiplierRedeliveryBackoff",
			returnNil)},
		`policy "a" is given twice`:                                 {NewPolicy("a", returnNil), NewPolicy("a", returnNil)},
		`policy "org.apache.pulsar.client.impl.ExponentialRedelive`: {NewPolicy("org.apache.pulsar.client.impl.ExponentialRedeliveryBackoff", returnNil)},
	} {
		_, err := Parse([]byte("consumers: {a: }"), policies...)
		assert.ErrorContains(t, err, want)
	}
}

func TestUndefinedConsumerIsAnError(t *testing.T) {
	c, err := Load("testdata/redelivery.yaml")
	require.NoError(t, err)
	want := `config: consumer is "biling", want one of the file's (billing, java-too, plain, shipping-eu)`
	_, err = c.Options("biling")
	assert.EqualError(t, err, want)
	_, _, err = c.ConsumerOptions("biling", pulsar.ConsumerOptions{})
	assert.EqualError(t, err, want)
	_, err = new(Config).Options("")
	assert.EqualError(t, err, `config: consumer is "", want one of the file's (the file has none)`)
}

func TestVariablesOverrideTheFile(t *testing.T) {
	for name, value := range map[string]string{
		"REDELIVERY_CONSUMERS_BILLING_ACK_TIMEOUT":               "20s",
		"REDELIVERY_CONSUMERS_BILLING_MAX_DELIVERIES":            "7",
		"REDELIVERY_CONSUMERS_BILLING_DEAD_LETTER_TOPIC":         "", // as if not set
		"REDELIVERY_CONSUMERS_BILLING_INITIAL_SUBSCRIPTION_NAME": "night-shift",
		"REDELIVERY_CONSUMERS_SHIPPING_EU_NACK_REDELIVERY_DELAY": "3s",
		"REDELIVERY_CONSUMERS_PLAIN_NACK_REDELIVERY_BACKOFF":     "gentle",
		"REDELIVERY_POLICIES_GENTLE_MAX":                         "5m",
		"REDELIVERY_POLICIES_GENTLE_JITTER":                      "0.5",
		"REDELIVERY_POLICIES_PIP130_PARAMS":                      `{"minDelayMs": 1}`,
		// Kubernetes sets such a variable for a service named redelivery
		"REDELIVERY_SERVICE_HOST": "10.0.0.1",
	} {
		t.Setenv(name, value)
	}
	c, err := Load("testdata/redelivery.yaml")
	require.NoError(t, err)
	gentle := backoff.WithJitter(backoff.Exponential{Min: s, Max: 5 * m, Multiplier: 2}, 0.5)
	assert.Equal(t, gentle, c.Policies["gentle"])
	assert.Equal(t, backoff.Exponential{Min: time.Millisecond}, c.Policies["pip130"])
	assert.Equal(t, 20*s, c.Consumers["billing"].AckTimeout)
	assert.EqualValues(t, 7, c.Consumers["billing"].MaxDeliveries)
	assert.Equal(t, "orders-dead", c.Consumers["billing"].DeadLetterTopic)
	assert.Equal(t, "night-shift", c.Consumers["billing"].InitialSubscriptionName)
	assert.Equal(t, 3*s, *c.Consumers["shipping-eu"].NackRedeliveryDelay)
	assert.Equal(t, Consumer{NackRedeliveryBackoff: gentle}, c.Consumers["plain"])

	t.Setenv("REDELIVERY_CONSUMERS_BILLING_ACK_TIMEOUT", "soon")
	t.Setenv("REDELIVERY_CONSUMERS_BILING_ACK_TIMEOUT", "1s")
	t.Setenv("REDELIVERY_CONSUMERS_BILLING_NACK_REDELIVERY_DELAY", "1s")
	_, err = Load("testdata/redelivery.yaml")
	assert.ErrorContains(t, err, `$REDELIVERY_CONSUMERS_BILLING_ACK_TIMEOUT: consumers.billing.ackTimeout is "soon", want a duration`)
	assert.ErrorContains(t, err, "$REDELIVERY_CONSUMERS_BILING_ACK_TIMEOUT is set, but the file has no")
	assert.ErrorContains(t, err, "$REDELIVERY_CONSUMERS_BILLING_NACK_REDELIVERY_DELAY: "+
		"consumers.billing.nackRedeliveryDelay is set, "+
		"and so is consumers.billing.nackRedeliveryBackoff at testdata/redelivery.yaml:14")
}

func TestVariableThatMatchesTwoNamesIsAnError(t *testing.T) {
	const file = "consumers: {a-b: , a_b: }"
	_, err := Parse([]byte(file))
	require.NoError(t, err)
	t.Setenv("REDELIVERY_CONSUMERS_A_B_ACK_TIMEOUT", "1s")
	_, err = Parse([]byte(file))
	assert.EqualError(t, err, "$REDELIVERY_CONSUMERS_A_B_ACK_TIMEOUT means both consumers.a-b.ackTimeout and "+
		"consumers.a_b.ackTimeout, "+
		"want names that differ in letters or digits")
}

func TestVariableOverridesAParameterOfACustomPolicy(t *testing.T) {
	t.Setenv("REDELIVERY_POLICIES_P_ATTEMPTS_PER_DAY", "5")
	var got map[string]any
	_, err := Parse([]byte("policies: {p: {type: mine, attemptsPerDay: 3}}"), NewPolicy("mine",
		func(params map[string]any) (backoff.RedeliveryBackoff, error) {
			got = params
			return backoff.Fixed(s), nil
		}))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"attemptsPerDay": 5}, got)
}

// If the plural matches no key, the variable may belong to another program.
func TestVariableInTheSingularIsAnErrorIfThePluralMatches(t *testing.T) {
	const file = "policies: {gentle: {type: fixed, delay: 1s}}\nconsumers: {billing: }\nworkers: {billing: }"
	for name, want := range map[string]string{
		"REDELIVERY_CONSUMER_BILLING_ACK_TIMEOUT": "$REDELIVERY_CONSUMER_BILLING_ACK_TIMEOUT is set, want " +
			"REDELIVERY_CONSUMERS_BILLING_ACK_TIMEOUT",
		"REDELIVERY_POLICY_GENTLE_DELAY": "$REDELIVERY_POLICY_GENTLE_DELAY is set, want " +
			"REDELIVERY_POLICIES_GENTLE_DELAY",
		"REDELIVERY_WORKER_BILLING_CONCURRENCY": "$REDELIVERY_WORKER_BILLING_CONCURRENCY is set, want " +
			"REDELIVERY_WORKERS_BILLING_CONCURRENCY",
		"REDELIVERY_CONSUMER_BILLING_IMAGE": "",
		"REDELIVERY_WORKER_SERVICE_HOST":    "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "7s")
			_, err := Parse([]byte(file))
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, want)
			t.Setenv(name, "")
			_, err = Parse([]byte(file))
			require.NoError(t, err)
		})
	}
}

func TestLoadErrorNamesTheUnreadableFile(t *testing.T) {
	_, err := Load("testdata/missing.yaml")
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "testdata/missing.yaml")
	_, err = Load("testdata")
	assert.ErrorContains(t, err, "testdata")
}

// For services named redelivery-consumers and redelivery-policies, Kubernetes sets variables in a pod that look like
// those of this package.
func TestVariablesOfKubernetesServicesAreIgnored(t *testing.T) {
	for _, name := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP",
		"PORT_8080_TCP_PROTO",
		"PORT_8080_TCP_PORT", "PORT_8080_TCP_ADDR"} {
		t.Setenv("REDELIVERY_CONSUMERS_"+name, "10.0.0.1")
		t.Setenv("REDELIVERY_POLICIES_"+name, "10.0.0.1")
	}
	_, err := Parse([]byte("consumers: {billing: {ackTimeout: 1s}}"))
	require.NoError(t, err)
	t.Setenv("REDELIVERY_CONSUMERS_BILLING_PORTS", "1")
	_, err = Parse([]byte("consumers: {billing: {ackTimeout: 1s}}"))
	require.ErrorContains(t, err, "REDELIVERY_CONSUMERS_BILLING_PORTS")
}
