-- Returns the changes since the caller's revision.
check()
return answer('ok')
