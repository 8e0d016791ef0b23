// Opens the declared database, queue and storage of a project, which actions and jobs get in `resources`,
// each under its binding. Also defines the jobs of the project's services.
import type { Database, Queries } from '../../kernel/data/database.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import { runAs } from '../../kernel/operator-errors.ts';
import type { Storage } from '../../kernel/storage/storage.ts';
import type {
  JobDefinition,
  ProjectDatabase,
  ProjectQueue,
  ProjectResource,
  ProjectStorage,
} from './definition.ts';
import { ProjectError, type ProjectService } from './registry.ts';
import { serviceCode } from './service-code.ts';

/** Resources as declared in townhall.json. */
export interface DeclaredResources {
  database?: { type: 'embedded' | 'postgres'; binding: string };
  queue?: { binding: string; name: string };
  storage?: { binding: string; directory: string; publicUrlPrefix: string };
}

interface ResourcesOptions {
  declared: DeclaredResources;
  /** The project's own connections, or the one session of the embedded engine. */
  database: Pick<Database, 'engine'> & Queries;
  /** Jobs are defined on it, so it must not be started yet. */
  queue: Jobs;
  openStorage(directory: string): Storage;
  projectServices: ReadonlyMap<string, ProjectService>;
  env: { get(key: string): string | undefined };
  log: Log;
}

/** The `resources` of a service's actions. */
export type ResourcesOf = (service: ProjectService) => Readonly<Record<string, ProjectResource>>;

/** Defines the jobs of all services. Throws a ProjectError when a declared resource is not available. */
export function openResources(options: ResourcesOptions): ResourcesOf {
  const { declared, projectServices, queue } = options;
  requireEngine(declared, options.database.engine);
  const sharedResources: Record<string, ProjectResource> = {};
  if (declared.database !== undefined)
    sharedResources[declared.database.binding] = databaseHandle(options.database);
  if (declared.storage !== undefined)
    sharedResources[declared.storage.binding] = storageHandle(
      options.openStorage(declared.storage.directory),
      declared.storage.publicUrlPrefix,
    );
  const resourceCache = new Map<string, Readonly<Record<string, ProjectResource>>>();
  const resourcesOf: ResourcesOf = (service) => {
    const serviceResources =
      resourceCache.get(service.id) ??
      Object.freeze({ ...sharedResources, ...queueOf(service, declared, queue) });
    resourceCache.set(service.id, serviceResources);
    return serviceResources;
  };
  for (const service of projectServices.values()) {
    if (service.jobs.size === 0) continue;
    if (declared.queue === undefined) {
      throw new ProjectError(
        `service "${service.id}": jobs need a queue; declare deployment.resources.queue in townhall.json.`,
      );
    }
    for (const [name, job] of service.jobs)
      defineJob({ service, name, job, queue: declared.queue.name }, { ...options, resourcesOf });
  }
  return resourcesOf;
}

function requireEngine({ database }: DeclaredResources, engine: Database['engine']): void {
  if (database?.type === 'postgres' && engine === 'embedded') {
    throw new ProjectError(
      'townhall.json declares a database of the type "postgres"; set DATABASE_URL to the URL of a PostgreSQL server.',
    );
  }
}

// Wraps `sql` in a new function, because assigning `begin` to `sql` itself would change the shared client.
// The casts drop the overloads of the tagged template; the arguments pass through unchanged.
function databaseHandle({ sql, tx }: Queries): ProjectDatabase {
  const handle = ((query: never, ...parameters: never[]) =>
    (sql as unknown as (...input: unknown[]) => unknown)(query, ...parameters)) as unknown as ProjectDatabase;
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
        if (!service.jobs.has(job)) throw new Error(unknownJobMessage(service, job));
        return queue.enqueue(queueName(declared.name, service, job), data, options);
      },
    },
  };
}

function unknownJobMessage({ id, jobs }: ProjectService, job: string): string {
  const remedy =
    jobs.size === 0 ? "declare it in the service's `jobs`" : `use one of ${[...jobs.keys()].join(', ')}`;
  return `The service "${id}" has no job "${job}"; ${remedy}.`;
}

function queueName(prefix: string, service: ProjectService, job: string): string {
  return `${prefix}/${service.id}/${job}`;
}

function defineJob(
  { service, name, job, queue }: { service: ProjectService; name: string; job: JobDefinition; queue: string },
  options: ResourcesOptions & { resourcesOf: ResourcesOf },
): void {
  const policy = {
    ...(job.retries === undefined ? {} : { retries: job.retries }),
    ...(job.timeoutSeconds === undefined ? {} : { expireSeconds: job.timeoutSeconds }),
    ...(job.concurrency === undefined ? {} : { concurrency: job.concurrency }),
  };
  options.queue.define<Record<string, unknown>>(
    queueName(queue, service, name),
    policy,
    async (data, { id, signal }) => {
      const log = options.log.child({ service: service.id, job: name, jobId: id });
      const env = Object.freeze(
        Object.fromEntries(service.env.map(({ key }) => [key, options.env.get(key)])),
      );
      const resources = options.resourcesOf(service);
      await runAs(serviceCode(log), () => job.run({ jobId: id, data, env, resources, signal, log }));
    },
  );
}
