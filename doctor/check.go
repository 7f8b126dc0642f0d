package doctor

import "slices"

// Check is one thing that redelivery depends on.
type Check struct {
	Name  string // a short name, and the check's anchor in docs/checks.md
	About string // the group that the check belongs to
	Asks  string // the question; the good answer is yes
	Why   string // why it matters, with code in `backquotes`
	// a command or an option that helps, in `backquotes`; Examine replaces names such as {topic} and {subscription}
	Remedy string
	Needs  Needs // what the check needs to run

	look func(*visit) verdict
}

// Link returns the address of the check in docs/checks.md.
func (c Check) Link() string {
	return "https://github.com/pulsar-redelivery/redelivery/blob/main/docs/checks.md#" + c.Name
}

// Needs are the requirements of a check.
type Needs uint8

const (
	// Options means that a consumer's options are enough: Subscribe runs the check, too.
	Options Needs = iota
	// Given means that the check also needs Setup.Worker or Setup.Load.
	Given
	// AdminAPI means that the check needs the right to read the topic's policies and statistics.
	AdminAPI
	// SuperUser means that the check reads the broker's configuration.
	SuperUser
)

// checks has all checks. A new check needs a file and a line in this list.
var checks = []Check{
	reachable, version, clock,
	topicExists, nonPersistent, scalable, partitionsAlike, subscriptionExists, subscriptionType, typeDelays,
	subscriptionExpires, leftBehind,
	timeToLives, evicted,
	policyRange, outageCovered, jitter, nackRetryTopicUsed, ackTimeout, workerTimeout, receiverQueue, memory,
	batchIndex, unackedLimits, blocked, ackHoles,
	retryTopicExists, retryConsumer, delayedOn, tick, maxDelay,
	deadTopicExists, deadLettersRead, deadLettersEmptied, deadLettersTTL, schemas, messageSize, backlogQuotas,
	inactiveTopics, producing, duplicates,
	consumers, idleConsumer, stuckDispatch, drain, keepAlive,
}

// Checks returns all checks in the order in which Examine runs them.
func Checks() []Check { return slices.Clone(checks) }
