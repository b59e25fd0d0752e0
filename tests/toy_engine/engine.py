"""The engine of toys."""

from easeml_db.errors import NotReady
from easeml_db.postgres.nodes.engine import Engine
from easeml_db.postgres.nodes.node_session import NodeUnitSession


class ToyUnitSession(NodeUnitSession):
    """Writes down what is asked of it."""

    async def call(self, procedure, text):
        await self._remote.execute("INSERT INTO public.toy_calls (procedure) VALUES (%s)", [procedure])
        return await super().call(procedure, text)


class Toy(Engine):
    """A toy."""

    options = " --engine toy --content 0"
    session = ToyUnitSession

    def serves(self, content):
        return content is not None

    def check(self, service, facts):
        if facts["database"] == "postgres":
            raise NotReady(f"service {service}: a toy is in a database of its own")

    def install(self, service, connection):
        super().install(service, connection)
        connection.execute("CREATE TABLE IF NOT EXISTS public.toy_calls (procedure text)")
        connection.execute("GRANT INSERT ON public.toy_calls TO easeml_segment")


ENGINES = (Toy(),)
