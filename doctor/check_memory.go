package doctor

var memory = Check{
	Name: "memory", About: "Policy", Needs: AdminAPI,
	Asks:   "Do waiting messages fit the memory limit?",
	Why:    "messages beyond the limit come back through the broker, behind prefetched ones",
	Remedy: "`WithMemoryLimit(bytes)`, or `memoryLimit` in the file",
	look: func(v *visit) verdict {
		waiting, rate, _ := v.waiting()
		s, err := v.stats(v.Topic)
		if err != nil || rate == 0 {
			return verdict{}
		}
		const own = 512 // bytes by which each message counts in addition to its payload
		each := waiting / max(1, v.instances())
		bytes := int64(each) * (int64(s.AverageMsgSize)*int64(max(1, v.messagesPerEntry())) + own)
		return judge(bytes <= v.Policy.MemoryLimit, Warning,
			"%d messages wait in each consumer, about %d of %d KiB, if %g%% fail", each, bytes>>10,
			v.Policy.MemoryLimit>>10, 100*v.Load.Failing)
	},
}
