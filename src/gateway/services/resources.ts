// What a project declares and its actions find in `resources`: the database, the queue and the storage, each behind
// its own binding and none of them the server's own. The jobs of the project's services run here too.
import type { Database, Queries } from '../../kernel/data/database.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import type { Storage } from '../../kernel/data/storage.ts';
import type {
  JobDefinition,
  ProjectDatabase,
  ProjectQueue,
  ProjectResource,
  ProjectStorage,
} from './definition.ts';
import { ProjectError, type ProjectService } from './registry.ts';

/** The declared resources and where they are. */
export interface DeclaredResources {
  database?: { type: 'embedded' | 'postgres'; binding: string };
  queue?: { binding: string; name: string };
  storage?: { binding: string; directory: string; publicUrlPrefix: string };
}

export interface ResourcesNeeds {
  declared: DeclaredResources;
  /** The project's own connections, or the one session of the embedded engine. */
  database: Pick<Database, 'engine'> & Queries;
  /** Not started yet. */
  queue: Jobs;
  openStorage(directory: string): Storage;
  projectServices: ReadonlyMap<string, ProjectService>;
  env: { get(key: string): string | undefined };
  log: Log;
}

/** What the actions of a service find in `resources`. */
export type ResourcesOf = (service: ProjectService) => Readonly<Record<string, ProjectResource>>;

/** Throws a ProjectError when the project asks for what is not there. Defines the jobs of all services. */
export function openResources(needs: ResourcesNeeds): ResourcesOf {
  const { declared, projectServices, queue } = needs;
  requireEngine(declared, needs.database.engine);
  const shared: Record<string, ProjectResource> = {};
  if (declared.database !== undefined) shared[declared.database.binding] = databaseHandle(needs.database);
  if (declared.storage !== undefined)
    shared[declared.storage.binding] = storageHandle(
      needs.openStorage(declared.storage.directory),
      declared.storage.publicUrlPrefix,
    );
  const found = new Map<string, Readonly<Record<string, ProjectResource>>>();
  const resourcesOf: ResourcesOf = (service) => {
    const own = found.get(service.id) ?? Object.freeze({ ...shared, ...queueOf(service, declared, queue) });
    found.set(service.id, own);
    return own;
  };
  for (const service of projectServices.values()) {
    if (service.jobs.size > 0 && declared.queue === undefined) {
      throw new ProjectError(
        `service "${service.id}": jobs need a queue; declare deployment.resources.queue in townhall.json.`,
      );
    }
    for (const [name, job] of service.jobs) defineJob({ service, name, job }, { ...needs, resourcesOf });
  }
  return resourcesOf;
}

function requireEngine({ database }: DeclaredResources, engine: Database['engine']): void {
  if (database?.type === 'postgres' && engine === 'embedded') {
    throw new ProjectError(
      'townhall.json declares a database of the type "postgres"; set DATABASE_URL to a PostgreSQL.',
    );
  }
}

function databaseHandle({ sql, tx }: Queries): ProjectDatabase {
  const handle = ((first: never, ...rest: never[]) =>
    (sql as unknown as (...given: unknown[]) => unknown)(first, ...rest)) as unknown as ProjectDatabase;
  return Object.assign(handle, sql, { begin: tx });
}

function storageHandle(storage: Storage, publicUrlPrefix: string): ProjectStorage {
  return { ...storage, url: (key) => `${publicUrlPrefix}/${encodeURIComponent(key)}` };
}

function queueOf(
  service: ProjectService,
  { queue: declared }: DeclaredResources,
  queue: Jobs,
): Record<string, ProjectQueue> {
  if (declared === undefined) return {};
  return {
    [declared.binding]: {
      enqueue(job, data, options = {}) {
        if (!service.jobs.has(job)) throw new Error(`The service ${service.id} has no job "${job}".`);
        return queue.enqueue(queueName(declared.name, service, job), data, options);
      },
    },
  };
}

function queueName(prefix: string, service: ProjectService, job: string): string {
  return `${prefix}/${service.id}/${job}`;
}

function defineJob(
  { service, name, job }: { service: ProjectService; name: string; job: JobDefinition },
  needs: ResourcesNeeds & { resourcesOf: ResourcesOf },
): void {
  const policy = {
    ...(job.retries === undefined ? {} : { retries: job.retries }),
    ...(job.timeoutSeconds === undefined ? {} : { expireSeconds: job.timeoutSeconds }),
    ...(job.concurrency === undefined ? {} : { concurrency: job.concurrency }),
  };
  needs.queue.define<Record<string, unknown>>(
    queueName(needs.declared.queue?.name ?? '', service, name),
    policy,
    async (data, { id, signal }) => {
      await job.run({
        jobId: id,
        data,
        env: Object.freeze(Object.fromEntries(service.env.map(({ key }) => [key, needs.env.get(key)]))),
        resources: needs.resourcesOf(service),
        signal,
        log: needs.log.child({ service: service.id, job: name, jobId: id }),
      });
    },
  );
}
