package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

func TestKeysOfTheAttemptLogBecomeOptions(t *testing.T) {
	c, err := Parse([]byte("consumers: {a: {attemptLog: true, attemptLogTopic: t, attemptLogOptional: true, " +
		"attemptLogOpenTimeout: 5s, attemptLogRetention: 2d}, " +
		"b: {attemptLog: false}}\n" +
		"workers: {a: {crashLimit: 3}, b: {crashLimit: 3, begunAfter: 0s}}"))
	require.NoError(t, err)
	assert.Equal(t, Consumer{AttemptLog: true, AttemptLogTopic: "t", AttemptLogOptional: true,
		AttemptLogOpenTimeout: 5 * time.Second,
		AttemptLogRetention:   48 * time.Hour}, c.Consumers["a"])
	assert.Equal(t, redelivery.AttemptLog{Topic: "t", OpenTimeout: 5 * time.Second, Optional: true,
		Retention: 48 * time.Hour}, c.Consumers["a"].attemptLog())
	for name, n := range map[string]int{"a": 1, "b": 0} {
		options, err := c.Options(name)
		require.NoError(t, err)
		assert.Len(t, options, n)
	}
	assert.Len(t, c.Workers["a"].options(), 1)
	assert.Len(t, c.Workers["b"].options(), 2)
	assert.Zero(t, *c.Workers["b"].BegunAfter)
	_, err = Parse([]byte("workers: {a: {begunAfter: 1s}}"))
	require.ErrorContains(t, err, "crashLimit")
}
