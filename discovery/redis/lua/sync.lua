-- Changes nothing, and tells what has changed.
return answer('ok')
