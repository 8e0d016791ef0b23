// SQL for the alarms of impossible usage. A stop of paid calls is not stored; it is
// derived from the alarms.
import type { Changes } from '../../../kernel/data/changes.ts';
import type { Database, Tx } from '../../../kernel/data/database.ts';

export interface StoredAlarm {
  userId: string;
  ageMs: number;
}

export interface AlarmStore {
  /** Stores an alarm and notifies all replicas. */
  add(userId: string): Promise<void>;
  /** The alarms of the last `windowMs`, the oldest first; 30,000 at most. */
  list(windowMs: number): Promise<StoredAlarm[]>;
  /** When the paid calls of each stopped user are allowed again; other users are absent. */
  stopEnds(
    userIds: readonly string[],
    stop: { windowMs: number; alarms: number },
  ): Promise<Map<string, Date>>;
  /** Deletes the alarms of the user. False when there was none. */
  remove(tx: Tx, userId: string): Promise<boolean>;
}

const maximumAlarms = 30_000;

export function alarmStore(database: Database, changes: Pick<Changes, 'bump'>): AlarmStore {
  const { sql } = database;
  return {
    add: (userId) =>
      database.tx(async (tx) => {
        // Alarms count for an hour (alarmWindowMs). Those older than a day are deleted.
        await tx`
          delete from gateway.ai_usage_alarms
          where created_at < gateway.townhall_now() - interval '1 day'`;
        await tx`insert into gateway.ai_usage_alarms (user_id) values (${userId})`;
        await changes.bump(tx);
      }),
    async list(windowMs) {
      const rows = await sql<{ userId: string; ageMs: number }[]>`
        select user_id as "userId",
          (extract(epoch from gateway.townhall_now() - created_at) * 1000)::float8 as "ageMs"
        from gateway.ai_usage_alarms
        where created_at > gateway.townhall_now() - make_interval(secs => ${windowMs / 1000})
        order by created_at desc limit ${maximumAlarms}`;
      return [...rows].reverse();
    },
    async stopEnds(userIds, { windowMs, alarms }) {
      const rows = await sql<{ userId: string; endsAt: Date }[]>`
        select user_id as "userId", created_at + make_interval(secs => ${windowMs / 1000}) as "endsAt"
        from (
          select user_id, created_at,
            row_number() over (partition by user_id order by created_at desc) as position
          from gateway.ai_usage_alarms
          where user_id = any(${sql.array([...userIds], 25)})
            and created_at > gateway.townhall_now() - make_interval(secs => ${windowMs / 1000})
        ) recent where position = ${alarms}`;
      return new Map(rows.map(({ userId, endsAt }) => [userId, endsAt]));
    },
    async remove(tx, userId) {
      const rows = await tx`delete from gateway.ai_usage_alarms where user_id = ${userId} returning 1`;
      return rows.length > 0;
    },
  };
}
