// Attachments on the disk, in one folder per session. No part of a path comes from a caller, no file
// is written through a link or over another, and files and folders are synced before their input is accepted.
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../../../kernel/file-errors.ts';
import { syncFolder } from '../../../kernel/folder.ts';
import { id } from '../../../kernel/ids.ts';
import { invalidMember, Problem } from '../../../kernel/problem.ts';

export interface AttachmentInput {
  fileName: string;
  contentType: string;
  content: string;
  encoding?: 'utf-8' | 'base64' | undefined;
}

export interface DecodedAttachment {
  attachmentId: string;
  storedName: string;
  fileName: string;
  contentType: string;
  encoding: 'utf-8' | 'base64';
  bytes: Buffer;
}

const maxFiles = 20;
const maxBytes = 8 * 1024 * 1024;
const maxNameBytes = 255;

/**
 * Decodes attachments and checks their limits; writes nothing. Throws 413 for too
 * many files or bytes, 400 for invalid base64.
 */
export function decodeAttachments(inputs: readonly AttachmentInput[]): DecodedAttachment[] {
  if (inputs.length > maxFiles)
    throw new Problem(
      'too_large',
      'request_too_large',
      `An input may have at most ${maxFiles} attachments; this one has ${inputs.length}.`,
      { param: 'attachments' },
    );
  let totalBytes = 0;
  return inputs.map(({ fileName, contentType, content, encoding = 'utf-8' }, index) => {
    const param = `attachments[${index}]`;
    if (Buffer.byteLength(fileName) > maxNameBytes)
      throw invalidMember(`${param}.fileName`, `may have at most ${maxNameBytes} bytes`);
    const bytes =
      encoding === 'base64' ? decodeBase64(content, `${param}.content`) : Buffer.from(content, 'utf8');
    totalBytes += bytes.length;
    if (totalBytes > maxBytes)
      throw new Problem(
        'too_large',
        'request_too_large',
        `The attachments of an input may have at most ${maxBytes / 1024 / 1024} MiB in total.`,
        { param: 'attachments' },
      );
    const attachmentId = id('att');
    return {
      attachmentId,
      storedName: `${attachmentId}${extensionOf(fileName)}`,
      fileName,
      contentType,
      encoding,
      bytes,
    };
  });
}

function decodeBase64(text: string, param: string): Buffer {
  if (!isBase64(text)) throw invalidMember(param, 'is not base64');
  return Buffer.from(text, 'base64');
}

function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text);
}

/**
 * Throws for a URL that the model's client could not decode: it would fail every later run of the session.
 */
export function requireDataUrl(url: string, param: string): void {
  const comma = url.indexOf(',');
  const isWhole =
    /^data:[^,]*;base64$/.test(url.slice(0, Math.max(comma, 0))) && isBase64(url.slice(comma + 1));
  if (!isWhole) throw invalidMember(param, 'must be a data: URL in base64');
}

// The extension helps operators who list the folder; no code reads it. Unusual extensions are dropped.
function extensionOf(fileName: string): string {
  return /\.[A-Za-z0-9]{1,8}$/.exec(fileName)?.[0].toLowerCase() ?? '';
}

export interface AttachmentFiles {
  /** Resolves when the files would survive a power failure. */
  write(sessionKey: string, files: readonly DecodedAttachment[]): Promise<void>;
  /** Null for a file that does not exist. */
  read(sessionKey: string, storedName: string): Promise<Buffer | null>;
  /** Removes the files of an input that was not accepted; files in an unreachable bucket stay. */
  discard(sessionKey: string, files: readonly DecodedAttachment[]): Promise<void>;
  removeAll(sessionKey: string): Promise<void>;
}

/** The folder of a session's files. A digest, because it is a valid name on every file system. */
export function folderName(sessionKey: string): string {
  return createHash('sha256').update(sessionKey).digest('hex').slice(0, 40);
}

export function attachmentFiles(dataDir: string): AttachmentFiles {
  const root = join(dataDir, 'sessions');
  const folderOf = (sessionKey: string) => join(root, folderName(sessionKey));

  async function write(folder: string, { storedName, bytes }: DecodedAttachment): Promise<void> {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const file = await open(join(folder, storedName), flags, 0o600);
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  return {
    async write(sessionKey, files) {
      if (files.length === 0) return;
      const folder = folderOf(sessionKey);
      const firstCreatedPath = await mkdir(folder, { recursive: true, mode: 0o700 });
      for (const file of files) await write(folder, file);
      await syncFolder(folder);
      // The name of a new folder is in the folder above it.
      if (firstCreatedPath !== undefined) await syncFolder(root);
      if (firstCreatedPath === root) await syncFolder(dataDir);
    },
    async read(sessionKey, storedName) {
      const path = join(folderOf(sessionKey), storedName);
      const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch(ignoreMissingFile);
      if (file === null) return null;
      try {
        return await file.readFile();
      } finally {
        await file.close();
      }
    },
    async discard(sessionKey, files) {
      await Promise.all(
        files.map(({ storedName }) => rm(join(folderOf(sessionKey), storedName), { force: true })),
      );
    },
    removeAll: (sessionKey) => rm(folderOf(sessionKey), { recursive: true, force: true }),
  };
}

function ignoreMissingFile(error: unknown): null {
  if (isMissing(error)) return null;
  throw error;
}
