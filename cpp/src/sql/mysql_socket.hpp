// The sockets of sessions with servers, so that a forked child can close its copies: while it holds
// one, the server does not notice that the parent died, and keeps the parent's row locks.
#pragma once

namespace hotcount::sql {

void remember_socket(int socket);
void forget_socket(int socket);

}  // namespace hotcount::sql
