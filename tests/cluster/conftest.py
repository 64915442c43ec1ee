import pytest
import ray
from ray.cluster_utils import Cluster

from agentrl.cluster.node_discovery import find_nodes


@pytest.fixture(scope="module")
def gpus():
    """GPUs of each node, in which only Ray believes."""
    return 0


@pytest.fixture(scope="module")
def cluster(gpus):
    """Two nodes of one machine."""
    cluster = Cluster(head_node_args={"num_gpus": gpus, "num_cpus": 1}, initialize_head=True)
    cluster.add_node(num_gpus=gpus, num_cpus=1)
    ray.init(cluster.address, log_to_driver=False, include_dashboard=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def nodes(cluster):
    """As a job finds them, that of this process first."""
    return find_nodes("ray")
