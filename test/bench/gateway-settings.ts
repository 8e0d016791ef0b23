// Settings of a gateway under measurement: no rate limit, only errors in the log, and credits for all calls.
import { join } from 'node:path';

export function gatewaySettings({
  folder,
  modelsFile,
  databaseUrl,
}: {
  /** The folder of the embedded database, which is used without a `databaseUrl`. */
  folder: string;
  modelsFile: string;
  databaseUrl: string | undefined;
}): Record<string, string> {
  return {
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'error',
    RATE_LIMIT_USER: 'off',
    MODELS_FILE: modelsFile,
    DATABASE_PATH: join(folder, 'data'),
    STARTING_CREDITS: '1000000000',
    ...(databaseUrl !== undefined && {
      DATABASE_URL: databaseUrl,
      TOWNHALL_MASTER_KEY: Buffer.alloc(32, 7).toString('base64'),
      ADMIN_ID: 'admin',
      ADMIN_PASSWORD: 'a rather long secret',
    }),
  };
}
