// The door of e-mail: the factory and the types that others may name.
export { mail, type Mail, type MailNeeds, type Message } from './mail.ts';
