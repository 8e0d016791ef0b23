// The room of sessions: the log, the runs that write it, and the routes to both.
export { createSessionRoom, preloadLoop, type SessionRoom } from './room.ts';
export type { GivenAttachment as Attachment } from './attachments/files.ts';
export type { Inputs } from './inputs.ts';
export type { SessionKind, SessionStore } from './store.ts';
