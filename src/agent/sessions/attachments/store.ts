// SQL of attachments: everything but their bytes, which are files.
import type { Database } from '../../../kernel/data/database.ts';
import { asText } from '../event-log/events.ts';
import type { UnitOfWork } from '../event-log/unit.ts';
import type { DecodedAttachment } from './files.ts';

export interface AttachmentRecord {
  attachmentId: string;
  sessionKey: string;
  /** The message that the attachment was sent with. */
  messageId: string;
  storedName: string;
  fileName: string;
  contentType: string;
  encoding: 'utf-8' | 'base64';
  sizeBytes: number;
}

export async function insertAttachments(
  { tx }: UnitOfWork,
  sessionKey: string,
  messageId: string,
  files: readonly DecodedAttachment[],
): Promise<void> {
  for (const [place, file] of files.entries()) {
    await tx`
      insert into agent.sessions_attachments (
        attachment_id, session_id, message_id, place, file_name,
        content_type, encoding, size_bytes, stored_name)
      values (${file.attachmentId}, ${sessionKey}, ${messageId}, ${place}, ${asText(file.fileName)},
        ${file.contentType}, ${file.encoding}, ${file.bytes.length}, ${file.storedName})`;
  }
}

export interface AttachmentStore {
  /**
   * Finds attachments by id. Ids are unique over all sessions, so this also finds attachments that
   * a fork inherits.
   */
  find(attachmentIds: readonly string[]): Promise<Map<string, AttachmentRecord>>;
}

export function attachmentStore({ sql }: Pick<Database, 'sql'>): AttachmentStore {
  return {
    async find(attachmentIds) {
      const rows = await sql<AttachmentRow[]>`
        select * from agent.sessions_attachments where attachment_id = any(${[...attachmentIds]}::text[])`;
      return new Map(rows.map((row) => [row.attachment_id, attachmentOf(row)]));
    },
  };
}

interface AttachmentRow {
  attachment_id: string;
  session_id: string;
  message_id: string;
  stored_name: string;
  file_name: string;
  content_type: string;
  encoding: 'utf-8' | 'base64';
  size_bytes: number;
}

function attachmentOf(row: AttachmentRow): AttachmentRecord {
  return {
    attachmentId: row.attachment_id,
    sessionKey: row.session_id,
    messageId: row.message_id,
    storedName: row.stored_name,
    fileName: row.file_name,
    contentType: row.content_type,
    encoding: row.encoding,
    sizeBytes: row.size_bytes,
  };
}
