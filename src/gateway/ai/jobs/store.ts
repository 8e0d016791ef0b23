// SQL of jobs and media. All times are by the clock of the database.
import type { Database, Tx } from '../../../kernel/data/database.ts';
import type { Owner } from '../calls/owner.ts';
import type {
  Job,
  JobCall,
  JobError,
  JobKind,
  JobRequest,
  MediaRecord,
  UpstreamJob,
  ClaimedJob,
} from './job.ts';
import type { PayableJob } from './payments.ts';

export interface JobsStore extends JobQueries, RunQueries, MediaQueries {
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

interface JobQueries {
  countOpen(tx: Tx, owner: Owner): Promise<number>;
  /**
   * Counts paid jobs that the owner canceled in the last hour while they ran, and that cost the owner
   * nothing, although a provider may have charged the operator.
   */
  countCanceledRuns(tx: Tx, owner: Owner): Promise<number>;
  insert(tx: Tx, job: JobRow): Promise<void>;
  find(job: JobAddress): Promise<Job | null>;
  list(page: JobsPage): Promise<Job[]>;
  /** Hides the job and expires its files. */
  remove(job: JobAddress): Promise<void>;
  /** Whether there is any job, in any state. */
  hasJobs(): Promise<boolean>;
  hasWaiting(kind: JobKind): Promise<boolean>;
  /** Cancels the job and returns it; null, without effect, for a job that had ended. */
  cancel(job: JobAddress): Promise<CanceledJob | null>;
  /** Saves the charge of a canceled job. */
  saveCredits(jobId: string, credits: bigint): Promise<void>;
  deleteOldJobs(keepSeconds: number): Promise<void>;
}

/**
 * Queries of runs. A write for a claimed job has no effect, and returns false if it returns a boolean, when
 * the job has been canceled or claimed again in the meantime.
 */
interface RunQueries {
  /**
   * Claims the next queued job: the oldest queued job of the owner with the fewest running jobs. Null when no
   * job is queued, or when the owners of all queued jobs are at `maxRunningPerOwner`.
   */
  claim(
    kind: JobKind,
    options: { leaseSeconds: number; maxRunningPerOwner: number },
  ): Promise<ClaimedJob | null>;
  /** Saves the hold that replaces a lost hold. */
  saveHold(job: ClaimedJob, holdId: string): Promise<boolean>;
  saveUpstreamJob(job: ClaimedJob, upstreamJob: UpstreamJob): Promise<boolean>;
  renewLease(job: ClaimedJob, state: { progress: number; leaseSeconds: number }): Promise<boolean>;
  /** Puts a job that this process cannot finish back into the queue. */
  release(job: ClaimedJob): Promise<void>;
  fail(job: ClaimedJob, error: JobError): Promise<boolean>;
  /** Publishes the media and ends the job. Also true when this attempt has already ended the job so. */
  succeed(
    tx: Tx,
    job: ClaimedJob,
    result: { media: readonly StoredMedia[]; keepSeconds: number; credits: bigint },
  ): Promise<boolean>;
  /**
   * Puts running jobs with an expired lease back into the queue, and finds jobs that have been queued for
   * longer than a lease, since their message may be lost. Fails jobs with too many attempts.
   */
  reclaimExpired(options: {
    leaseSeconds: number;
    maxAttempts: number;
    error: JobError;
  }): Promise<{ waiting: { jobId: string; kind: JobKind; attempt: number }[]; failed: AbortedJob[] }>;
  /**
   * Puts all running jobs back into the queue and expires all leases. Called when a process starts that is
   * alone on the database: these jobs belong to a dead process.
   */
  releaseAll(): Promise<void>;
}

interface MediaQueries {
  /**
   * Inserts the row of a file before its bytes are stored; the file is not served before `succeed`.
   */
  insertMedia(
    job: ClaimedJob,
    media: { mediaId: string; position: number; keepSeconds: number },
  ): Promise<void>;
  /**
   * Expires the owner's oldest media beyond `maxBytes`, but never the media of this job. Returns the number
   * of expired media.
   */
  expireMediaBeyond(tx: Tx, job: Pick<ClaimedJob, 'jobId' | 'owner'>, maxBytes: number): Promise<number>;
  /** Null when the link or the media has expired. */
  findMedia(mediaId: string, expires: number): Promise<MediaRecord | null>;
  /** The caller deletes the bytes of these media first, then their rows with `deleteMedia`. */
  listExpiredMedia(limit: number): Promise<string[]>;
  deleteMedia(mediaIds: readonly string[]): Promise<void>;
}

interface JobRow {
  jobId: string;
  kind: JobKind;
  owner: Owner;
  request: JobRequest;
  leaseSeconds: number;
  call: JobCall | null;
  holdId: string | null;
}

/** Media with bytes in the storage. */
export type StoredMedia = MediaRecord & { bytes: number };

export interface JobAddress {
  jobId: string;
  kind: JobKind;
  owner: Owner;
}

/** A page of an owner's jobs. */
export interface JobsPage {
  kind: JobKind;
  owner: Owner;
  /** The last job of the previous page. */
  after: string | undefined;
  order: 'asc' | 'desc';
  limit: number;
}

/** A job that ended without a result. The caller must release its hold and cancel its upstream job. */
export interface AbortedJob extends PayableJob {
  upstreamJob: UpstreamJob | null;
}

/** A job that its owner canceled, with the request, from which its charge is computed. */
export interface CanceledJob extends AbortedJob {
  request: JobRequest;
}

// The object id of PostgreSQL's type `text`.
const textType = 25;

// The selected row: credits are a bigint, and a job without media has null.
type SelectedJob = Omit<Job, 'credits' | 'media'> & { credits: bigint | null; media: MediaRecord[] | null };

type AbortedRow = Omit<AbortedJob, 'owner' | 'call'> & {
  ownerKind: Owner['kind'];
  ownerId: string;
  requestId: string | null;
  tokenId: string | null;
  bureauId: string | null;
};

function abortedColumns(sql: Database['sql'] | Tx) {
  return sql`job_id as "jobId", kind, owner_kind as "ownerKind", owner_id as "ownerId", model,
    hold_id as "holdId", request_id as "requestId", token_id as "tokenId", bureau_id as "bureauId",
    attempt, upstream_order as "upstreamJob"`;
}

function abortedJob({ ownerKind, ownerId, requestId, tokenId, bureauId, ...job }: AbortedRow): AbortedJob {
  const call = requestId === null || tokenId === null ? null : { requestId, tokenId, bureauId };
  return { ...job, owner: { kind: ownerKind, id: ownerId }, call };
}

export function jobsStore(database: Database): JobsStore {
  return {
    tx: database.tx,
    ...jobReads(database),
    ...jobChanges(database),
    ...claimQueries(database),
    ...claimedJobWrites(database),
    ...mediaQueries(database),
  };
}

function jobColumns(sql: Database['sql']) {
  return sql`job_id as "jobId", kind, model,
    case when kind = 'video' then request - 'images' - 'provider_options' end as request,
    status, progress, error, credits,
    created_at as "createdAt", finished_at as "finishedAt", gateway.townhall_now() as "readAt",
    (
      select jsonb_agg(
        jsonb_build_object(
          'mediaId', media_id, 'mediaType', media_type,
          'width', width, 'height', height, 'durationSeconds', duration_seconds
        ) order by position)
      from gateway.ai_media m
      where m.job_id = j.job_id and is_ready and keep_until > gateway.townhall_now()
    ) as media`;
}

function selectedJob({ credits, media, ...job }: SelectedJob): Job {
  return { ...job, credits: credits === null ? null : Number(credits), media: media ?? [] };
}

type JobReads = Pick<
  JobQueries,
  'countOpen' | 'countCanceledRuns' | 'find' | 'list' | 'hasJobs' | 'hasWaiting'
>;

function jobReads({ sql }: Database): JobReads {
  return {
    async countOpen(tx, owner) {
      const [row] = await tx<{ count: bigint }[]>`
        select count(*) as count from gateway.ai_jobs
        where owner_id = ${owner.id} and owner_kind = ${owner.kind} and status in ('queued', 'running')`;
      return Number(row?.count ?? 0);
    },
    async countCanceledRuns(tx, owner) {
      const [row] = await tx<{ count: bigint }[]>`
        select count(*) as count from gateway.ai_jobs
        where owner_id = ${owner.id} and owner_kind = ${owner.kind} and status = 'canceled'
          and attempt > 0 and hold_id is not null and credits = 0
          and finished_at > gateway.townhall_now() - interval '1 hour'`;
      return Number(row?.count ?? 0);
    },
    async find({ jobId, kind, owner }) {
      const [row] = await sql<SelectedJob[]>`
        select ${jobColumns(sql)} from gateway.ai_jobs j
        where job_id = ${jobId} and kind = ${kind}
          and owner_kind = ${owner.kind} and owner_id = ${owner.id} and removed_at is null`;
      return row ? selectedJob(row) : null;
    },
    async list({ kind, owner, after, order, limit }) {
      const isDescending = order === 'desc';
      const cursorCondition =
        after === undefined
          ? sql``
          : sql`and (created_at, job_id) ${isDescending ? sql`<` : sql`>`}
              (select created_at, job_id from gateway.ai_jobs where job_id = ${after})`;
      const rows = await sql<SelectedJob[]>`
        select ${jobColumns(sql)} from gateway.ai_jobs j
        where kind = ${kind} and owner_kind = ${owner.kind} and owner_id = ${owner.id}
          and removed_at is null ${cursorCondition}
        order by ${isDescending ? sql`created_at desc, job_id desc` : sql`created_at, job_id`} limit ${limit}`;
      return rows.map(selectedJob);
    },
    async hasJobs() {
      const [row] = await sql<{ exists: boolean }[]>`select exists (select 1 from gateway.ai_jobs) as exists`;
      return row?.exists === true;
    },
    async hasWaiting(kind) {
      const [row] = await sql<{ isWaiting: boolean }[]>`
        select exists (
          select 1 from gateway.ai_jobs where kind = ${kind} and status = 'queued') as "isWaiting"`;
      return row?.isWaiting === true;
    },
  };
}

type JobChanges = Pick<JobQueries, 'insert' | 'remove' | 'cancel' | 'saveCredits' | 'deleteOldJobs'>;

function jobChanges({ sql, tx: transaction }: Database): JobChanges {
  return {
    async insert(tx, { jobId, kind, owner, request, leaseSeconds, call, holdId }) {
      await tx`
        insert into gateway.ai_jobs (
          job_id, kind, owner_kind, owner_id, model, request, lease_until,
          hold_id, request_id, token_id, bureau_id)
        values (${jobId}, ${kind}, ${owner.kind}, ${owner.id}, ${request.model}, ${tx.json(request as never)},
          gateway.townhall_now() + make_interval(secs => ${leaseSeconds}),
          ${holdId}, ${call?.requestId ?? null}, ${call?.tokenId ?? null}, ${call?.bureauId ?? null})`;
    },
    remove: ({ jobId, kind, owner }) =>
      transaction(async (tx) => {
        const rows = await tx`
          update gateway.ai_jobs set removed_at = gateway.townhall_now()
          where job_id = ${jobId} and kind = ${kind}
            and owner_kind = ${owner.kind} and owner_id = ${owner.id} and removed_at is null
          returning 1`;
        if (rows.length > 0)
          await tx`
            update gateway.ai_media set keep_until = gateway.townhall_now()
            where job_id = ${jobId} and is_ready and keep_until > gateway.townhall_now()`;
      }),
    async cancel({ jobId, kind, owner }) {
      const [row] = await sql<(AbortedRow & { request: JobRequest })[]>`
        update gateway.ai_jobs
        set status = 'canceled', request = null, credits = 0, finished_at = gateway.townhall_now()
        from (
          select job_id as former_id, request as former_request from gateway.ai_jobs
          where job_id = ${jobId} for update) former
        where job_id = former_id and kind = ${kind}
          and owner_kind = ${owner.kind} and owner_id = ${owner.id} and status in ('queued', 'running')
        returning ${abortedColumns(sql)}, former_request as "request"`;
      return row ? { ...abortedJob(row), request: row.request } : null;
    },
    async saveCredits(jobId, credits) {
      await sql`update gateway.ai_jobs set credits = ${credits} where job_id = ${jobId}`;
    },
    async deleteOldJobs(keepSeconds) {
      // Media usually expire much earlier. A job that still has media is kept until their bytes are deleted.
      await sql`
        delete from gateway.ai_jobs j
        where created_at < gateway.townhall_now() - make_interval(secs => ${keepSeconds})
          and status not in ('queued', 'running')
          and not exists (select 1 from gateway.ai_media m where m.job_id = j.job_id)`;
    },
  };
}

type ClaimQueries = Pick<RunQueries, 'claim' | 'reclaimExpired' | 'releaseAll'>;

// Queries that distribute the jobs over the processes.
function claimQueries({ sql, tx: transaction }: Database): ClaimQueries {
  return {
    claim: (kind, { leaseSeconds, maxRunningPerOwner }) =>
      transaction(async (tx) => {
        // Serializes claims: two concurrent claims would count the same running jobs and together exceed the
        // owner's limit.
        await tx`select pg_advisory_xact_lock(hashtextextended(${`townhall.ai_jobs.${kind}`}, 0))`;
        const [row] = await tx<(AbortedRow & { request: JobRequest })[]>`
          update gateway.ai_jobs
          set status = 'running', attempt = attempt + 1,
            lease_until = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
          where status = 'queued' and job_id = (
            select job_id from gateway.ai_jobs waiting
            left join (
              select owner_kind, owner_id, count(*) as running from gateway.ai_jobs
              where kind = ${kind} and status = 'running' group by owner_kind, owner_id
            ) busy using (owner_kind, owner_id)
            where waiting.kind = ${kind} and waiting.status = 'queued'
              and coalesce(busy.running, 0) < ${maxRunningPerOwner}
            order by coalesce(busy.running, 0), waiting.created_at, waiting.job_id
            limit 1 for update of waiting skip locked)
          returning ${abortedColumns(tx)}, request`;
        return row ? { ...abortedJob(row), request: row.request } : null;
      }),
    reclaimExpired: ({ leaseSeconds, maxAttempts, error }) =>
      transaction(async (tx) => {
        const failedRows = await tx<AbortedRow[]>`
          update gateway.ai_jobs
          set status = 'failed', request = null, credits = 0, error = ${tx.json(error as never)},
            finished_at = gateway.townhall_now()
          where status in ('queued', 'running') and lease_until < gateway.townhall_now()
            and attempt >= ${maxAttempts}
          returning ${abortedColumns(tx)}`;
        const rows = await tx<{ jobId: string; kind: JobKind; attempt: number }[]>`
          update gateway.ai_jobs
          set status = 'queued', progress = 0,
            lease_until = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
          where status in ('queued', 'running') and lease_until < gateway.townhall_now()
          returning job_id as "jobId", kind, attempt`;
        return { waiting: [...rows], failed: failedRows.map(abortedJob) };
      }),
    async releaseAll() {
      await sql`
        update gateway.ai_jobs
        set status = 'queued', progress = 0, lease_until = gateway.townhall_now() - interval '1 second'
        where status in ('queued', 'running')`;
    },
  };
}

type ClaimedJobWrites = Pick<
  RunQueries,
  'saveHold' | 'saveUpstreamJob' | 'renewLease' | 'release' | 'fail' | 'succeed'
>;

// Writes of the run that has claimed a job; its attempt number fences off earlier runs.
function claimedJobWrites({ sql }: Database): ClaimedJobWrites {
  return {
    async saveHold({ jobId, attempt }, holdId) {
      const rows = await sql`
        update gateway.ai_jobs set hold_id = ${holdId}
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async saveUpstreamJob({ jobId, attempt }, upstreamJob) {
      const rows = await sql`
        update gateway.ai_jobs set upstream_order = ${sql.json(upstreamJob as never)}
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async renewLease({ jobId, attempt }, { progress, leaseSeconds }) {
      const rows = await sql`
        update gateway.ai_jobs
        set progress = ${progress},
          lease_until = gateway.townhall_now() + make_interval(secs => ${leaseSeconds})
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async release({ jobId, attempt }) {
      await sql`
        update gateway.ai_jobs set status = 'queued', progress = 0, lease_until = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running'`;
    },
    async fail({ jobId, attempt }, error) {
      const rows = await sql`
        update gateway.ai_jobs
        set status = 'failed', request = null, credits = 0, error = ${sql.json(error as never)},
          finished_at = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      return rows.length > 0;
    },
    async succeed(tx, { jobId, attempt }, { media, keepSeconds, credits }) {
      const rows = await tx`
        update gateway.ai_jobs
        set status = 'succeeded', progress = 1, request = null, hold_id = null, credits = ${credits},
          finished_at = gateway.townhall_now()
        where job_id = ${jobId} and attempt = ${attempt} and status = 'running' returning 1`;
      if (rows.length === 0) return hasSucceeded(tx, { jobId, attempt });
      for (const { mediaId, mediaType, width, height, durationSeconds, bytes } of media) {
        await tx`
          update gateway.ai_media
          set is_ready = true, media_type = ${mediaType}, width = ${width}, height = ${height},
            duration_seconds = ${durationSeconds}, bytes = ${bytes},
            keep_until = gateway.townhall_now() + make_interval(secs => ${keepSeconds})
          where job_id = ${jobId} and media_id = ${mediaId}`;
      }
      return true;
    },
  };
}

async function hasSucceeded(
  tx: Tx,
  { jobId, attempt }: Pick<ClaimedJob, 'jobId' | 'attempt'>,
): Promise<boolean> {
  const rows = await tx`
    select 1 from gateway.ai_jobs
    where job_id = ${jobId} and attempt = ${attempt} and status = 'succeeded'`;
  return rows.length > 0;
}

function mediaQueries({ sql }: Database): MediaQueries {
  return {
    async insertMedia({ jobId }, { mediaId, position, keepSeconds }) {
      // Placeholders: `succeed` writes the type and size, which are known once the bytes have been read.
      await sql`
        insert into gateway.ai_media (media_id, job_id, position, media_type, width, height, keep_until)
        values (${mediaId}, ${jobId}, ${position}, 'application/octet-stream', 0, 0,
          gateway.townhall_now() + make_interval(secs => ${keepSeconds}))`;
    },
    async expireMediaBeyond(tx, { jobId, owner }, maxBytes) {
      // Media ids increase with time, so the oldest have the smallest.
      const rows = await tx`
        with kept as (
          select m.media_id, m.job_id,
            sum(m.bytes) over (order by m.job_id = ${jobId} desc, m.media_id desc) as total
          from gateway.ai_media m join gateway.ai_jobs j using (job_id)
          where j.owner_kind = ${owner.kind} and j.owner_id = ${owner.id}
            and m.is_ready and m.keep_until > gateway.townhall_now())
        update gateway.ai_media m set keep_until = gateway.townhall_now()
        from kept
        where m.media_id = kept.media_id and kept.total > ${maxBytes} and kept.job_id <> ${jobId}
        returning 1`;
      return rows.length;
    },
    async findMedia(mediaId, expires) {
      const [row] = await sql<MediaRecord[]>`
        select media_id as "mediaId", media_type as "mediaType", width, height,
          duration_seconds as "durationSeconds"
        from gateway.ai_media
        where media_id = ${mediaId} and is_ready and keep_until > gateway.townhall_now()
          and extract(epoch from gateway.townhall_now()) < ${expires}::float8`;
      return row ?? null;
    },
    async listExpiredMedia(limit) {
      const rows = await sql<{ mediaId: string }[]>`
        select media_id as "mediaId" from gateway.ai_media
        where keep_until <= gateway.townhall_now() order by keep_until limit ${limit}`;
      return rows.map(({ mediaId }) => mediaId);
    },
    async deleteMedia(mediaIds) {
      await sql`delete from gateway.ai_media where media_id = any(${sql.array([...mediaIds], textType)})`;
    },
  };
}
