// Serializes users for answers: one form for the users themselves, one for administrators.
import type { User as UserBody, UserRecord } from '../../../contract/gateway/types.gen.ts';
import type { ExistingUser, User } from './store.ts';

export function serializeUser(user: User): UserBody {
  return {
    user_id: user.userId,
    email: user.email,
    display_name: user.displayName,
    avatar_url: user.avatarUrl,
    metadata: user.metadata,
    created_at: user.createdAt.toISOString(),
  };
}

export function serializeUserRecord(user: ExistingUser, stopEndsAt: Date | undefined): UserRecord {
  return {
    ...serializeUser(user),
    bureau_id: user.bureauId,
    state: user.state,
    paid_calls_stopped_until: stopEndsAt?.toISOString() ?? null,
  };
}
