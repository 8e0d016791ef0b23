// The tables of jobs and media, and the only file that names them. All times are the database's own.
import type { Database, Tx } from '../../../kernel/data/database.ts';
import type {
  Job,
  JobCall,
  JobError,
  JobKind,
  JobRequest,
  MediaRecord,
  UpstreamJob,
  Owner,
  ClaimedJob,
} from './job.ts';
import type { PayableJob } from './payments.ts';

export interface JobsStore {
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  countOpen(tx: Tx, owner: Owner): Promise<number>;
  insert(
    tx: Tx,
    job: {
      jobId: string;
      kind: JobKind;
      owner: Owner;
      request: JobRequest;
      leaseSeconds: number;
      call: JobCall | null;
      holdId: string | null;
    },
  ): Promise<void>;
  find(job: JobAddress): Promise<Job | null>;
  /** Whether there is any job at all, of whatever state. */
  hasJobs(): Promise<boolean>;
  /**
   * Takes the next waiting job: the oldest of the owner with the fewest running ones. Null when none waits, or when all
   * are of owners that run `mostRunning` already.
   */
  claim(
    kind: JobKind,
    options: { leaseSeconds: number; maxRunningPerOwner: number },
  ): Promise<ClaimedJob | null>;
  hasWaiting(kind: JobKind): Promise<boolean>;
  /** Notes the hold that took the place of a lost one. */
  saveHold(taken: ClaimedJob, holdId: string): Promise<void>;
  /** Notes what the job has ordered; false when it is no longer this taker's. */
  saveUpstreamJob(taken: ClaimedJob, upstreamJob: UpstreamJob): Promise<boolean>;
  /** False when the job is no longer this taker's: canceled, or given to another. */
  renewLease(taken: ClaimedJob, now: { progress: number; leaseSeconds: number }): Promise<boolean>;
  /** Gives a job back that could not be finished here. */
  release(taken: ClaimedJob): Promise<void>;
  /** Notes what is about to be stored. */
  insertMedia(
    taken: ClaimedJob,
    media: { mediaId: string; position: number; keepSeconds: number },
  ): Promise<void>;
  /** False, and nothing is changed, when the job is no longer this taker's. */
  succeed(
    own: Tx,
    taken: ClaimedJob,
    made: { media: readonly StoredMedia[]; keepSeconds: number; credits: bigint },
  ): Promise<boolean>;
  /** Ends the keeping of the owner's oldest media beyond so many bytes, those of the job excepted; says of how many. */
  expireMediaBeyond(own: Tx, job: Pick<ClaimedJob, 'jobId' | 'owner'>, mostBytes: number): Promise<number>;
  fail(taken: ClaimedJob, error: JobError): Promise<boolean>;
  /** The job that this has ended; null, and without effect, for one that had come to an end. */
  cancel(job: JobAddress): Promise<AbortedJob | null>;
  /** Lets jobs wait again whose taker fell silent, and gives all that wait for too long; those taken too often fail. */
  reclaimExpired(options: {
    leaseSeconds: number;
    maxAttempts: number;
    error: JobError;
  }): Promise<{ waiting: { jobId: string; kind: JobKind; attempt: number }[]; failed: AbortedJob[] }>;
  /** For an engine that one process has alone: whatever runs was left by a dead one. */
  releaseAll(): Promise<void>;
  /** The media under the link, unless the link or the keeping is over. */
  findMedia(mediaId: string, expires: number): Promise<MediaRecord | null>;
  /** Media that are no longer kept; their bytes go first, then `forgetMedia`. */
  listExpiredMedia(limit: number): Promise<string[]>;
  deleteMedia(mediaIds: readonly string[]): Promise<void>;
  deleteOldJobs(keepSeconds: number): Promise<void>;
}

/** Media whose bytes are in the storage. */
export type StoredMedia = MediaRecord & { bytes: number };

export interface JobAddress {
  jobId: string;
  kind: JobKind;
  owner: Owner;
}

/** A job that came to its end without what was asked for, and what has to end with it. */
export interface AbortedJob extends PayableJob {
  upstreamJob: UpstreamJob | null;
}

// What the database gives in another form than a job has it.
type JobRow = Omit<Job, 'credits' | 'media'> & { credits: bigint | null; media: MediaRecord[] | null };

type EndedRow = Omit<AbortedJob, 'owner' | 'call'> & {
  ownerKind: Owner['kind'];
  ownerId: string;
  requestId: string | null;
  tokenId: string | null;
  bureauId: string | null;
};

function endedColumns(own: Database['sql'] | Tx) {
  return own`job_id as "jobId", kind, owner_kind as "ownerKind", owner_id as "ownerId", model, hold_id as "holdId", request_id as "requestId", token_id as "tokenId", bureau_id as "bureauId", attempt, upstream_order as "upstreamJob"`;
}

function endedJob({
  ownerKind,
  ownerId,
  requestId,
  tokenId,
  bureauId,
  jobId,
  kind,
  model,
  holdId,
  attempt,
  upstreamJob,
}: EndedRow): AbortedJob {
  const call = requestId === null || tokenId === null ? null : { requestId, tokenId, bureauId };
  return {
    jobId,
    kind,
    owner: { kind: ownerKind, id: ownerId },
    model,
    call,
    holdId,
    attempt,
    upstreamJob,
  };
}

export function jobsStore({ sql, tx }: Database): JobsStore {
  const seconds = (count: number) => sql`make_interval(secs => ${count})`;

  return {
    tx,
    async countOpen(own, owner) {
      const [row] = await own<{ count: bigint }[]>`
        select count(*) as count from gateway.ai_jobs where owner_id = ${owner.id} and owner_kind = ${owner.kind} and status in ('queued', 'running')`;
      return Number(row?.count ?? 0);
    },
    async insert(own, { jobId, kind, owner, request, leaseSeconds, call, holdId }) {
      await own`
        insert into gateway.ai_jobs (job_id, kind, owner_kind, owner_id, model, request, lease_until, hold_id, request_id, token_id, bureau_id)
        values (${jobId}, ${kind}, ${owner.kind}, ${owner.id}, ${request.model}, ${own.json(request as never)},
          gateway.townhall_now() + make_interval(secs => ${leaseSeconds}), ${holdId}, ${call?.requestId ?? null}, ${call?.tokenId ?? null}, ${call?.bureauId ?? null})`;
    },
    async find({ jobId, kind, owner }) {
      const [row] = await sql<JobRow[]>`
        select job_id as "jobId", kind, model, status, progress, error, credits, created_at as "createdAt", finished_at as "finishedAt", gateway.townhall_now() as "readAt",
          (select jsonb_agg(jsonb_build_object('mediaId', media_id, 'mediaType', media_type, 'width', width, 'height', height, 'durationSeconds', duration_seconds) order by position)
            from gateway.ai_media m where m.job_id = j.job_id and is_ready and keep_until > gateway.townhall_now()) as media
        from gateway.ai_jobs j
        where job_id = ${jobId} and kind = ${kind} and owner_kind = ${owner.kind} and owner_id = ${owner.id}`;
      return row
        ? { ...row, credits: row.credits === null ? null : Number(row.credits), media: row.media ?? [] }
        : null;
    },
    async hasJobs() {
      const [row] = await sql<{ found: boolean }[]>`select exists (select 1 from gateway.ai_jobs) as found`;
      return row?.found === true;
    },
    async hasWaiting(kind) {
      const [row] = await sql<
        { isWaiting: boolean }[]
      >`select exists (select 1 from gateway.ai_jobs where kind = ${kind} and status = 'queued') as "isWaiting"`;
      return row?.isWaiting === true;
    },
    claim: (kind, { leaseSeconds, maxRunningPerOwner }) =>
      tx(async (own) => {
        // One taker at a time: those that count the same running jobs would together exceed the limit.
        await own`select pg_advisory_xact_lock(hashtextextended(${`townhall.ai_jobs.${kind}`}, 0))`;
        const [row] = await own<(EndedRow & { request: JobRequest })[]>`
          update gateway.ai_jobs set status = 'running', attempt = attempt + 1, lease_until = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
          where status = 'queued' and job_id = (
            select job_id from gateway.ai_jobs waiting
            left join (
              select owner_kind, owner_id, count(*) as running from gateway.ai_jobs where kind = ${kind} and status = 'running' group by owner_kind, owner_id
            ) busy using (owner_kind, owner_id)
            where waiting.kind = ${kind} and waiting.status = 'queued' and coalesce(busy.running, 0) < ${maxRunningPerOwner}
            order by coalesce(busy.running, 0), waiting.created_at, waiting.job_id
            limit 1 for update of waiting skip locked)
          returning ${endedColumns(own)}, request`;
        return row ? { ...endedJob(row), request: row.request } : null;
      }),
    async saveHold({ jobId, attempt }, holdId) {
      await sql`update gateway.ai_jobs set hold_id = ${holdId} where job_id = ${jobId} and attempt = ${attempt} and status = 'running'`;
    },
    async saveUpstreamJob({ jobId, attempt }, upstreamJob) {
      const rows = await sql`
        update gateway.ai_jobs set upstream_order = ${sql.json(upstreamJob as never)}
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async renewLease({ jobId, attempt }, { progress, leaseSeconds }) {
      const rows = await sql`
        update gateway.ai_jobs set progress = ${progress}, lease_until = gateway.townhall_now() + ${seconds(leaseSeconds)}
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async release({ jobId, attempt }) {
      await sql`
        update gateway.ai_jobs set status = 'queued', progress = 0, lease_until = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running'`;
    },
    async insertMedia({ jobId }, { mediaId, position, keepSeconds }) {
      // What it is, its bytes will tell.
      await sql`
        insert into gateway.ai_media (media_id, job_id, position, media_type, width, height, keep_until)
        values (${mediaId}, ${jobId}, ${position}, 'application/octet-stream', 0, 0, gateway.townhall_now() + ${seconds(keepSeconds)})`;
    },
    async succeed(own, { jobId, attempt }, { media, keepSeconds, credits }) {
      const rows = await own`
        update gateway.ai_jobs set status = 'succeeded', progress = 1, request = null, hold_id = null, credits = ${credits}, finished_at = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      if (rows.length === 0) return false;
      for (const { mediaId, mediaType, width, height, durationSeconds, bytes } of media) {
        await own`
          update gateway.ai_media set is_ready = true, media_type = ${mediaType}, width = ${width}, height = ${height}, duration_seconds = ${durationSeconds}, bytes = ${bytes},
            keep_until = gateway.townhall_now() + make_interval(secs => ${keepSeconds})
          where job_id = ${jobId} and media_id = ${mediaId}`;
      }
      return true;
    },
    async expireMediaBeyond(own, { jobId, owner }, mostBytes) {
      // Ids are in the order of time.
      const rows = await own`
        with kept as (
          select m.media_id, m.job_id, sum(m.bytes) over (order by m.job_id = ${jobId} desc, m.media_id desc) as total
          from gateway.ai_media m join gateway.ai_jobs j using (job_id)
          where j.owner_kind = ${owner.kind} and j.owner_id = ${owner.id} and m.is_ready and m.keep_until > gateway.townhall_now())
        update gateway.ai_media m set keep_until = gateway.townhall_now()
        from kept where m.media_id = kept.media_id and kept.total > ${mostBytes} and kept.job_id <> ${jobId} returning 1`;
      return rows.length;
    },
    async fail({ jobId, attempt }, error) {
      const rows = await sql`
        update gateway.ai_jobs set status = 'failed', request = null, credits = 0, error = ${sql.json(error as never)}, finished_at = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async cancel({ jobId, kind, owner }) {
      const [row] = await sql<EndedRow[]>`
        update gateway.ai_jobs set status = 'canceled', request = null, credits = 0, finished_at = gateway.townhall_now()
        where job_id = ${jobId} and kind = ${kind} and owner_kind = ${owner.kind} and owner_id = ${owner.id} and status in ('queued', 'running')
        returning ${endedColumns(sql)}`;
      return row ? endedJob(row) : null;
    },
    reclaimExpired: ({ leaseSeconds, maxAttempts, error }) =>
      tx(async (own) => {
        const failed = await own<EndedRow[]>`
          update gateway.ai_jobs set status = 'failed', request = null, credits = 0, error = ${own.json(error as never)}, finished_at = gateway.townhall_now()
          where status in ('queued', 'running') and lease_until < gateway.townhall_now() and attempt >= ${maxAttempts}
          returning ${endedColumns(own)}`;
        const rows = await own<{ jobId: string; kind: JobKind; attempt: number }[]>`
          update gateway.ai_jobs set status = 'queued', progress = 0, lease_until = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
          where status in ('queued', 'running') and lease_until < gateway.townhall_now()
          returning job_id as "jobId", kind, attempt`;
        return { waiting: [...rows], failed: failed.map(endedJob) };
      }),
    async releaseAll() {
      await sql`update gateway.ai_jobs set status = 'queued', progress = 0, lease_until = gateway.townhall_now() - interval '1 second' where status in ('queued', 'running')`;
    },
    async findMedia(mediaId, expires) {
      const [row] = await sql<MediaRecord[]>`
        select media_id as "mediaId", media_type as "mediaType", width, height, duration_seconds as "durationSeconds"
        from gateway.ai_media
        where media_id = ${mediaId} and is_ready and keep_until > gateway.townhall_now() and extract(epoch from gateway.townhall_now()) < ${expires}::float8`;
      return row ?? null;
    },
    async listExpiredMedia(limit) {
      const rows = await sql<{ mediaId: string }[]>`
        select media_id as "mediaId" from gateway.ai_media where keep_until <= gateway.townhall_now() order by keep_until limit ${limit}`;
      return rows.map(({ mediaId }) => mediaId);
    },
    async deleteMedia(mediaIds) {
      await sql`delete from gateway.ai_media where media_id = any(${sql.array([...mediaIds], 25)})`;
    },
    async deleteOldJobs(keepSeconds) {
      // Its media are gone long before; a job that still has some waits for them.
      await sql`
        delete from gateway.ai_jobs j where created_at < gateway.townhall_now() - ${seconds(keepSeconds)} and status not in ('queued', 'running')
          and not exists (select 1 from gateway.ai_media m where m.job_id = j.job_id)`;
    },
  };
}
