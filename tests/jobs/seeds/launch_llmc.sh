mpirun -np 8 ./train_gpt2cu -i "data_*.bin" -e "d24" -b 16 -t 1024 -d 1048576 -r 2 -z 1 -x -1 -w 0
