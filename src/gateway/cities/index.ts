// The door of the cities: the factory, its store, and the types that others may name.
export { cities, type Cities, type CitiesNeeds } from './cities.ts';
export { citiesStore, type CitiesStore, type City, type Deployment } from './store.ts';
