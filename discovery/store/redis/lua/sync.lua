-- Changes nothing that is as it should be, and tells what has changed.
check()
return answer('ok')
