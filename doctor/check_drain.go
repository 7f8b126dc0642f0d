package doctor

import (
	"fmt"
	"time"
)

var drain = Check{
	Name: "drain", About: "Consumers", Needs: Given,
	Asks: "Does the process have time to drain?",
	Why:  "if a process is killed during its drain, finished messages come again",
	Remedy: "`terminationGracePeriodSeconds: {drain}`, or a shorter `worker.WithDrainTimeout`; a shorter " +
		"`OperationTimeout`",
	look: func(v *visit) verdict {
		if v.Worker == nil {
			return verdict{}
		}
		has, needs := v.Consumer.TerminationGracePeriodSeconds, v.gracePeriod()
		found := verdict{Unknown, fmt.Sprintf("a drain needs %ds; how long the process has is not known; "+
			"give -grace-period", needs)}
		if has > 0 {
			found = judge(has >= needs, Warning, "a drain needs %ds, and has %ds", needs, has)
		}
		if d, op := v.Worker.DrainTimeout, v.Consumer.OperationTimeout; op > d && d > 0 {
			found = worse(found, warning("OperationTimeout is %v, the drain timeout %v", op, d))
		}
		return found
	},
}

// gracePeriod returns how many seconds it may take to end a worker and close its consumer.
func (v *visit) gracePeriod() int {
	const after = 6 * time.Second // see worker.WithDrainTimeout
	d := 30 * time.Second
	if v.Worker != nil {
		d = v.Worker.DrainTimeout
	}
	return int((d + after + time.Second - 1) / time.Second)
}
