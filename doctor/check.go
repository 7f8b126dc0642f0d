package doctor

import "slices"

// Check is one thing that redelivery depends on.
type Check struct {
	Name   string // short, and its place in docs/production.md
	About  string // what it belongs to
	Asks   string // what is asked: a yes is good
	Why    string // it matters; code is in `backquotes`
	Remedy string // a command or an option, in `backquotes`, with {names} of what is examined
	Needs  Needs  // who can tell

	look func(*visit) verdict
}

// Needs is what a check needs to be able to tell.
type Needs uint8

const (
	// Options means that a consumer's options are enough: Subscribe runs the check, too.
	Options Needs = iota
	// Given means that the check also needs what a Setup says of the worker and the load.
	Given
	// AdminAPI means that the check needs the right to read the topic's policies and statistics.
	AdminAPI
	// SuperUser means that the check reads the broker's configuration.
	SuperUser
)

// checks are all checks. A new one is a file and a line here.
var checks = []Check{
	reachable, version, clock,
	topicExists, nonPersistent, partitionsAlike, subscriptionExists, subscriptionType, typeDelays, subscriptionExpires,
	timeToLives, evicted,
	policyRange, outageCovered, jitter, nackRetryTopicUsed, handlerTime, receiverQueue, memory,
	unackedLimits, blocked, batchIndex, ackHoles,
	retryTopicExists, retryConsumer, delayedOn, tick, maxDelay,
	deadTopicExists, deadLettersRead, deadLettersEmptied, deadLettersLive, schemas, backlogQuotas, inactiveTopics, producing, duplicates,
	consumers, idleConsumer, stuckDispatch, drain, keepAlive,
}

// Checks returns all checks in the order in which Examine runs them.
func Checks() []Check { return slices.Clone(checks) }
