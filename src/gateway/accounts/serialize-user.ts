// Users as they are written in answers: to themselves, and to an administrator.
import type { User as WireUser, UserRecord } from '../../contract/gateway/types.gen.ts';
import type { User } from './store.ts';

export function wireUser(user: User): WireUser {
  return {
    user_id: user.userId,
    email: user.email,
    display_name: user.displayName,
    avatar_url: user.avatarUrl,
    metadata: user.metadata,
    created_at: user.createdAt.toISOString(),
  };
}

export function wireUserRecord(user: User): UserRecord {
  return {
    ...wireUser(user),
    bureau_id: user.bureauId,
    state: user.state === 'blocked' ? 'blocked' : 'active',
  };
}
