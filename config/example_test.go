package config_test

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
)

func ExampleParse() {
	c, err := config.Parse([]byte(`
policies:
  gentle: {type: exponential, min: 1s, max: 60s}
consumers:
  billing: {nackRedeliveryBackoff: gentle, ackTimeout: 10s}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	options, err := c.Options("billing") // for redelivery.Subscribe
	fmt.Println(len(options), err)

	_, err = config.Parse([]byte(`
policies:
  gentle: {type: exponential, min: 1}
consumers:
  billing: {nackRedeliveryBackoff: gentel}
`))
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// line 3: policies.gentle.min is 1, want a duration with its unit, such as "30s"
	// line 5: consumers.billing.nackRedeliveryBackoff is "gentel", want the name of a policy (gentle)
}

func ExampleNewPolicy() {
	linear := config.NewPolicy("linear", func(params map[string]any) (backoff.RedeliveryBackoff, error) {
		text, _ := params["step"].(string)
		step, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("step: %w", err)
		}
		return backoff.Func(func(n uint32) time.Duration { return step * time.Duration(min(n, 9)+1) }), nil
	})
	c, err := config.Parse([]byte("policies: {slow: {type: linear, step: 2s}}"), linear)
	if err != nil {
		fmt.Println(err)
		return
	}
	for n, d := range backoff.Schedule(c.Policies["slow"], 3) {
		fmt.Println(n, d)
	}
	// Output:
	// 0 2s
	// 1 4s
	// 2 6s
}
